--- Mutants of what looks at calls and options: declarations of functions of C and Lua, positions, the environment.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "500-forward-surplus", file = "lua/ganymede/nn/module.lua",
    find = [[if select("#", ...) > most then refuse_surplus(self, most, ...) end]],
    replace = "",
    breaks = "what a layer is called with beyond what its forward takes is ignored",
    test = "spec/config/nothing_ignored_spec.lua -f 'what forward takes'",
  },
  {
    name = "501-position-surplus", file = "lua/ganymede/nn/module.lua",
    find = [[if not names[i] and args[i] ~= nil then refuse_position(class, args, i) end]],
    replace = "",
    breaks = "layers ignore what is given by position beyond PyTorch's names",
    test = "spec/config/nothing_ignored_spec.lua -f positions",
  },
  {
    name = "502-behind-options", file = "lua/ganymede/nn/module.lua",
    find = [[
    if select(i, ...) ~= nil then
      error(("%s takes a table]],
    replace = [[
    if i > 3 and select(i, ...) ~= nil then
      error(("%s takes a table]],
    breaks = "layers ignore what follows their table of options",
    test = "spec/config/nothing_ignored_spec.lua -f positions",
  },
  {
    name = "503-name-within-name", file = "lua/ganymede/options.lua",
    find = [[return best or not most and containing(name, candidates) or nil]],
    replace = [[return best]],
    breaks = "smoothing is not told to mean label_smoothing",
    test = "spec/config/options_spec.lua -f nearest",
  },
  {
    name = "504-object-counts", file = "lua/ganymede/signature.lua",
    find = [[:format(i - (method and 1 or 0), sig.name,]],
    replace = [[:format(i, sig.name,]],
    breaks = "the object before the colon counts as argument 1 in messages",
    test = "spec/config/nothing_ignored_spec.lua -f 'by the name'",
  },
  {
    name = "505-environment-value", file = "lua/ganymede/environment.lua",
    find = [[if entry.pattern and not value:find(entry.pattern) then]],
    replace = [[if false then]],
    breaks = "a variable of the environment may have a value that means nothing",
    test = "spec/cli/environment_spec.lua -f 'means nothing'",
  },
  {
    name = "506-environment-unknown", file = "lua/ganymede/environment.lua",
    find = [[local names = core.environment "GANYMEDE_"]],
    replace = [[local names = {}]],
    breaks = "a misspelt variable of the environment is ignored",
    test = "spec/cli/environment_spec.lua -f 'nothing reads'",
  },
  {
    name = "507-norm-type-huge", file = "lua/ganymede/schema.lua",
    find = [[norm_type = { type = "number", above = 0, default = 2, infinite = true,]],
    replace = [[norm_type = { type = "number", above = 0, default = 2,]],
    breaks = "norm_type = math.huge, the largest gradient, is refused",
    test = "spec/config/config_spec.lua -f 'math.huge'",
  },
  {
    name = "508-constructor-surplus", file = "lua/ganymede/signature.lua",
    find = [[
    if n > sig.most then
      local own]],
    replace = [[
    if n > sig.most + 9 then
      local own]],
    breaks = "classes ignore arguments that they do not take",
    test = "spec/config/nothing_ignored_spec.lua -f classes",
  },
  {
    name = "509-options-in-order", file = "lua/ganymede/signature.lua",
    find = [[if not entry or not options.is_allowed(entry, value) then return nil end]],
    replace = [[if not entry then return nil end]],
    breaks = "functions of Lua take options of the wrong type",
    test = "spec/config/nothing_ignored_spec.lua -f 'by the name'",
  },
  {
    name = "510-embedding-positions", file = "lua/ganymede/nn/embedding.lua",
    find = [[Embedding.positional = { "count", "width", "padding_index" }]],
    replace = [[Embedding.positional = { "count", "width" }]],
    breaks = "an embedding takes no padding_index by PyTorch's position",
    test = "spec/config/nothing_ignored_spec.lua -f positions",
  },
  {
    name = "511-near-misses", file = "lua/ganymede/config.lua",
    find = [[if in_code and not fields[key] and not open and path == "" then refuse_near_miss(state, fields, key) end]],
    replace = "",
    breaks = "a program's misspelt setting is taken for a key of its own",
    test = "spec/config/nothing_ignored_spec.lua -f 'typing error'",
  },
  {
    name = "512-behind-elements", file = "lua/ganymede/nn/containers.lua",
    find = [[return construct(cls, { layers = first }, ...) end]],
    replace = [[return construct(cls, { layers = first }) end]],
    breaks = "lists of layers ignore what follows their table",
    test = "spec/config/nothing_ignored_spec.lua -f positions",
  },
  {
    name = "513-c-surplus", file = "bindings/declare.c",
    find = [[if (!lua_isnil(L, i)) return false;]],
    replace = "",
    breaks = "functions of C ignore arguments that they do not take",
    test = "spec/config/nothing_ignored_spec.lua -f 'functions of C'",
  },
  {
    name = "514-c-option-not-finite", file = "bindings/declare.c",
    find = [[if (!isfinite(v)) return false;]],
    replace = "",
    breaks = "options of functions of C may be infinite",
    test = "spec/config/nothing_ignored_spec.lua -f 'without a meaning'",
  },
  {
    name = "515-c-option-integer", file = "bindings/declare.c",
    find = [[return type == LUA_TNUMBER && in_range(o->range, v) && v == floor(v);]],
    replace = [[return type == LUA_TNUMBER && in_range(o->range, v);]],
    breaks = "an option that is a whole number may be 1.5 in C",
    test = "spec/config/nothing_ignored_spec.lua -f 'without a meaning'",
  },
  {
    name = "516-c-option-unknown", file = "bindings/declare.c",
    find = [[good = o->name && is_option_value(L, o);]],
    replace = [[good = !o->name || is_option_value(L, o);]],
    breaks = "functions of C ignore options that they do not know",
    test = "spec/config/nothing_ignored_spec.lua -f 'functions of C'",
  },
  {
    name = "517-c-object-counts", file = "bindings/declare.c",
    find = [[arg - method, gm_declared(L)->name]],
    replace = [[arg, gm_declared(L)->name]],
    breaks = "the tensor before the colon counts as argument 1 in messages of C",
    test = "spec/config/nothing_ignored_spec.lua -f 'by the name'",
  },
  {
    name = "518-names-in-lists", file = "bindings/handle.c",
    find = [[lua_tonumber(L, -2) <= (lua_Number)n)]],
    replace = [[lua_tonumber(L, -2) <= (lua_Number)n || n < 1000000)]],
    breaks = "fields with names in a list of dimensions are ignored: x:sum { dim = 1 } sums all",
    test = "spec/config/nothing_ignored_spec.lua -f 'because of a name'",
  },
  {
    name = "519-behind-sizes", file = "bindings/handle.c",
    find = [[if (n > 1 && lua_istable(L, arg)) gm_bad_argument(L, arg + 1, "nothing follows a list of sizes");]],
    replace = "",
    breaks = "what follows a list of sizes is ignored",
    test = "spec/config/nothing_ignored_spec.lua -f 'cannot be a size'",
  },
  {
    name = "520-backward-options", file = "bindings/lua_autograd.c",
    find = [[if (strcmp(key, "retain_graph")) luaL_error(]],
    replace = [[if (strcmp(key, "retain_graph") && !L) luaL_error(]],
    breaks = "misspelt options of backward are ignored",
    test = "spec/autograd/graphs_spec.lua -f 'by their names'",
  },
  {
    name = "521-called-by-name", file = "kernels/op.c",
    find = [[if (attrs && attrs->name) return attrs->name;]],
    replace = "",
    breaks = "messages name an op of the kernels, not the function that was called",
    test = "spec/config/nothing_ignored_spec.lua -f 'by the name'",
  },
  {
    name = "522-nil-behind", file = "bindings/declare.c",
    find = [[if (n > e->most) n = e->most;]],
    replace = "",
    breaks = "a nil behind the arguments of a function of C is refused",
    test = "spec/config/nothing_ignored_spec.lua -f 'because of a name'",
  },
  {
    name = "583-smoothing-range", file = "kernels/infer_rest.c",
    find = [[GM_TRY(gm_expect_range(call, "label_smoothing", call->attrs->label_smoothing, 0, 1));]],
    replace = "",
    breaks = "label smoothing out of its range reaches the kernel",
    test = "spec/config/nothing_ignored_spec.lua -f 'without a meaning'",
  },
  {
    name = "584-dropout-range", file = "kernels/infer_dense.c",
    find = [[GM_TRY(gm_expect_range(call, "p", at->p, 0, 1));]],
    replace = "",
    breaks = "dropout of attention out of its range reaches the kernel",
    test = "spec/config/nothing_ignored_spec.lua -f 'without a meaning'",
  },
}
