-- What a row is set to that leaves its holder other than by a commit of its own: what its journal says that it does not.
revision = n.revision, journal_length = n.journal_length, step = n.step
