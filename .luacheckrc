std = "luajit"
read_globals = { "GANYMEDE_ROOT" } -- set by the host: the top of the tree
max_line_length = 120
include_files = { "**/*.lua" }
exclude_files = { "build*", "runs" }
self = false -- methods that do not use self are methods all the same
files["spec"] = { std = "+busted", globals = { "finally" } }
files["lua/ganymede/base/strict.lua"] = { ignore = { "122" } } -- the one place that changes _G's metatable
