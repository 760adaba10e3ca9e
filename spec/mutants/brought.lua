--- Mutants of what people bring: models in files of others, layers made in a forward, words of a command.
-- table.lua says what the fields are.
return {
  {
    name = "3042-mlp-bias", file = "lua/ganymede/nn/transformer.lua",
    find = [[if opt.mlp_bias ~= nil then mlp.bias = opt.mlp_bias end]],
    replace = [[]],
    breaks = "MLPs have biases where attention has them, whatever mlp_bias says",
    test = "spec/hub/pretrained_spec.lua -n 1 -f 'biases are where'",
  },
  {
    name = "3043-attention-bias-alone", file = "lua/ganymede/hub/families/llama.lua",
    find = [[if kind ~= "llama" then mlp = false end]],
    replace = [[if kind ~= "llama" then mlp = attention end]],
    breaks = "biases of MLPs are sought in a Qwen3 whose attention has some",
    test = "spec/hub/families_spec.lua -n 1 -f qwen3_yarn",
  },
  {
    name = "3044-biases-unsaid", file = "lua/ganymede/hub/families/llama.lua",
    find = [[if llama.mlp_bias(opt) then families.refuse(kind, opt.mlp_bias and "mlp_bias" or "bias", true) end]],
    replace = [[]],
    breaks = "a model whose MLPs have biases is written in a format that has no word for them",
    test = "spec/hub/pretrained_spec.lua -n 1 -f 'biases and blocks'",
  },
  {
    name = "3045-yarn-truncated", file = "lua/ganymede/nn/rotary.lua",
    find = [[if opt.truncate then low, high = math.floor(low), math.ceil(high) end]],
    replace = [[low, high = math.floor(low), math.ceil(high)]],
    breaks = "yarn rounds the borders of its blend where the file says that it does not",
    test = "spec/hub/families_spec.lua -n 1 -f llama_yarn",
  },
  {
    name = "3046-yarn-mscale", file = "lua/ganymede/hub/families/llama.lua",
    find = [[return (own * grown + 1) / (all * grown + 1)]],
    replace = [[return own * grown + 1]],
    breaks = "mscale_all_dim is not counted",
    test = "spec/hub/families_spec.lua -n 1 -f llama_yarn",
  },
  {
    name = "3047-yarn-truncate-written", file = "lua/ganymede/hub/families/llama.lua",
    find = [[rope.rope_type, rope[key] = given.scaling.type, given.scaling[ours]
]],
    replace = [[rope.rope_type, rope[key] = given.scaling.type, given.scaling[ours] or nil
]],
    breaks = "a written config.json does not say that yarn rounds nothing",
    test = "spec/hub/families_spec.lua -n 1 -f 'llama_yarn is written'",
  },
  {
    name = "3048-dynamic-base", file = "lua/ganymede/nn/rotary.lua",
    find = [[^ (turned / (turned - 2)), {}]],
    replace = [[, {}]],
    breaks = "a dynamic base grows by another power than in transformers",
    test = "spec/hub/families_spec.lua -n 1 -f llama_dynamic",
  },
  {
    name = "3049-dynamic-kept-keys", file = "lua/ganymede/nn/rotary.lua",
    find = [[return kept <= border.positions or border.each and grown > kept]],
    replace = [[return kept <= border.positions]],
    breaks = "keys that a smaller base has turned are used for longer texts",
    test = "spec/hub/families_spec.lua -n 1 -f 'llama_dynamic writes'",
  },
  {
    name = "3050-dynamic-rows", file = "lua/ganymede/nn/rotary.lua",
    find = [[  return long.each and positions or 1]],
    replace = [[  return long.each and long.border + 1 or 1]],
    breaks = "all long texts of a dynamic base are turned as the shortest of them",
    test = "spec/hub/families_spec.lua -n 1 -f 'llama_dynamic gives'",
  },
  {
    name = "3051-dynamic-documents", file = "lua/ganymede/nn/rotary.lua",
    find = [[  if long.each then
    error(]],
    replace = [[  if false then
    error(]],
    breaks = "documents of a long row are turned by a wrong base in silence",
    test = "spec/nn/cache_spec.lua -f 'dynamic base'",
  },
  {
    name = "3052-mlp-only-layers", file = "lua/ganymede/hub/families/moe.lua",
    find = [[dense[#dense + 1] = only[i - 1] and i or nil]],
    replace = [[dense[#dense + 1] = only[i] and i or nil]],
    breaks = "mlp_only_layers is read as if it counted from 1",
    test = "spec/hub/families_spec.lua -n 1 -f qwen3_moe_layers",
  },
  {
    name = "3053-dense-of-every", file = "lua/ganymede/nn/transformer.lua",
    find = [[return not dense[i] and i % every == 0 and own or nil]],
    replace = [[return not dense[i] and own or nil]],
    breaks = "with a list of dense blocks, all others have experts whatever `every` says",
    test = "spec/experts/routers_spec.lua -n 1 -f 'last of each'",
  },
  {
    name = "3054-late-layer", file = "lua/ganymede/nn/module.lua",
    find = [[if running and next(self._module.parameters) then]],
    replace = [[if false then]],
    breaks = "a layer that a forward makes computes and is never trained, in silence",
    test = "spec/nn/own_class_spec.lua -f 'wherever it is kept'",
  },
  {
    name = "3055-late-attached", file = "lua/ganymede/nn/module.lua",
    find = [[if is_called(self) and #value:declared() > 0 then]],
    replace = [[if false then]],
    breaks = "a layer made elsewhere is attached by a forward, and never trained",
    test = "spec/nn/own_class_spec.lua -f 'made elsewhere'",
  },
  {
    name = "3056-late-parameter", file = "lua/ganymede/nn/module.lua",
    find = [[if is_called(self) then undeclared]],
    replace = [[if false then undeclared]],
    breaks = "a parameter that a forward declares is never trained",
    test = "spec/nn/own_class_spec.lua -f 'made elsewhere'",
  },
  {
    name = "3057-running-for-ever", file = "lua/ganymede/nn/module.lua",
    find = [[  running = outer
]],
    replace = [[  if ok then running = outer end
]],
    breaks = "after an error in a forward no layer can be made any more",
    test = "spec/nn/own_class_spec.lua -f 'but not of layers'",
  },
  {
    name = "3058-sweep-metric", file = "lua/ganymede/cli/sweep/init.lua",
    find = [[    if one == name then return end
]],
    replace = [[    do return one, name end
]],
    breaks = "a metric that nobody measures is found missing after the first run of a sweep",
    test = "spec/cli/sweep_spec.lua -f misspelt",
  },
  {
    name = "3089-sweep-own-hooks", file = "lua/ganymede/cli/sweep/init.lua",
    find = [[if group == "test" and known.others then return end]],
    replace = [[]],
    breaks = "a metric that a hook of one's own adds is refused",
    test = "spec/cli/sweep_spec.lua -f 'which metrics there are'",
  },
  {
    name = "3090-max-of-all", file = "bindings/lua_ops.c",
    find = [["the largest of all elements is]],
    replace = [["the first of all elements is]],
    breaks = "max without a dimension does not say how the largest of all elements is found",
    test = "spec/kernels/reduce_spec.lua -f 'without a dimension'",
  },
  {
    name = "3091-models-without-heads", file = "lua/ganymede/hub/families/init.lua",
    find = [[return has and has(first) and "" or root end]],
    replace = [[return root, has, first end]],
    breaks = "files of models that were saved without their heads are not found",
    test = "spec/hub/without_heads_spec.lua -f 'without its head'",
  },
  {
    name = "3092-strangers", file = "lua/ganymede/hub/sources.lua",
    find = [[  if next(there) or #left == 0 then return end
]],
    replace = [[  do return file, there, left end
]],
    breaks = "with strict = false a file of another model gives new numbers alone, in silence",
    test = "spec/hub/without_heads_spec.lua -f 'without any array'",
  },
  {
    name = "3093-new-numbers-said", file = "lua/ganymede/hub/sources.lua",
    find = [[  if #missing > 0 and core.rank() == 0 then]],
    replace = [[  if false then]],
    breaks = "nobody is told which numbers of a model are new",
    test = "spec/hub/without_heads_spec.lua -f 'without its head'",
  },
  {
    name = "3094-rope-freqs", file = "lua/ganymede/hub/gguf.lua",
    find = [[scaling = factors and scaling_of_factors(factors, base, size) or scaling }]],
    replace = [[scaling = scaling }]],
    breaks = "the factors of a GGUF file of Llama 3.1 are not used",
    test = "spec/hub/gguf_spec.lua -f 'Llama 3.1'",
  },
  {
    name = "3095-rope-freqs-fit", file = "lua/ganymede/hub/gguf.lua",
    find = [[> 1e-5 * factors[j] then return false end]],
    replace = [[> factors[j] then return false end]],
    breaks = "factors of frequencies become some scaling of Llama 3.1 that has others",
    test = "spec/hub/gguf_spec.lua -f 'Llama 3.1'",
  },
  {
    name = "3096-running-numbers-trained", file = "lua/ganymede/nn/batch_norm.lua",
    find = [[local dtype = core.default_dtype() == "f64" and "f64" or "f32"]],
    replace = [[local dtype = "f32"]],
    breaks = "a model in f64 keeps the running numbers of its batch norms in f32",
    test = "spec/hub/pictures_training_spec.lua -f resnet",
  },
  {
    name = "3097-idle-keys", file = "lua/ganymede/hub/families/init.lua",
    find = [[  transformers.js_config unsloth_fixed unsloth_version]],
    replace = [[  unsloth_fixed unsloth_version]],
    breaks = "a well-known file is refused for a key of another program",
    test = "spec/hub/pretrained_spec.lua -n 1 -f 'may have keys'",
  },
}
