-- As on PostgreSQL; raise() takes no expression here, so the message cannot name the row.
create trigger if not exists testing_guard before update of status on executions
when (old.status, new.status) not in (values {legal})
begin
    select raise(abort, 'illegal status transition: not in core.status.LEGAL');
end;
