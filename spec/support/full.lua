--- Whether this is `.ci/run --full` (GANYMEDE_SPEC_STEPS of 50 or more): all of what can be compared is, and not a part
-- that meets each of it once.
return (tonumber(os.getenv "GANYMEDE_SPEC_STEPS") or 0) >= 50
