"""`holdfast demo`: real work in view, a worker killed in the middle, and the proof that nothing was lost or repeated.

command   the options, and what is printed at the end
story     what happens, in order: start, kill, signal, start again, prove
machines  the orders and parcels, ordinary user code
worker    the process that works on them, and is killed
process   that process, seen from its parent
audit     what really ran, written beside the ledger by the steps themselves
progress  numbers while it runs; display puts them on the screen
proof     the ledger held against the audit
"""
