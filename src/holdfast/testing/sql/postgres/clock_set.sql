update {schema}.testing_clock set now = $1
