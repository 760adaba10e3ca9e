--- Mutants of fine-tuning: adapters and their files, weights from elsewhere, conversations, layer-wise rates.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "910-dora-norm", file = "lua/ganymede/nn/adapter.lua",
    find = [[ops.sum(across * b, 2) * (2 * scale)]],
    replace = [[ops.sum(across * b, 2) * scale]],
    breaks = "the norm of W + scale B A has the mixed term once",
    test = "spec/nn/lora_spec.lua -f 'm / norm'",
  },
  {
    name = "911-dora-detached", file = "lua/ganymede/nn/adapter.lua",
    find = [[  return tensors.no_grad(tensors.scope, function()
    local place = self._module.parameters.magnitude]],
    replace = [[  return tensors.scope(function()
    local place = self._module.parameters.magnitude]],
    breaks = "gradients go through the norm of DoRA",
    test = "spec/nn/lora_spec.lua -f 'a norm that stays'",
  },
  {
    name = "912-dora-partial", file = "lua/ganymede/nn/adapter.lua",
    find = [[return sum:redistribute { cuts = { cuts[1] or false } } + own * scale ^ 2]],
    replace = [[return sum + own * scale ^ 2]],
    breaks = "the square of A B is added once for each rank that holds a part of W's columns",
    test = "spec/parallel/lora_spec.lua -f 'with magnitudes.*1d on 2, sequence'",
  },
  {
    name = "913-dora-bias", file = "lua/ganymede/nn/linear.lua",
    find = [[  local y, b = self:product(x, nil, true)]],
    replace = [[  local y, b = self:product(x)]],
    breaks = "a magnitude multiplies the bias, too",
    test = "spec/nn/lora_spec.lua -f 'm / norm'",
  },
  {
    name = "914-lora-parts", file = "lua/ganymede/nn/adapter.lua",
    find = [[  for i = 1, place - 1 do first = first + layer.row_parts[i] end]],
    replace = [[]],
    breaks = "the magnitudes of keys and values are those of queries",
    test = "spec/nn/lora_spec.lua -f 'value with magnitudes'",
  },
  {
    name = "915-lora-eval", file = "lua/ganymede/nn/lora.lua",
    find = [[  if not layer.training then layer.lora:eval() end]],
    replace = [[]],
    breaks = "adapters that are added in evaluation mode drop elements of their input",
    test = "spec/hub/adapters_spec.lua -f llama",
  },
  {
    name = "916-peft-rows", file = "lua/ganymede/hub/adapters.lua",
    find = [[piece.order and piece.offset[2] or piece.offset[1]
]],
    replace = [[piece.offset[1]
]],
    breaks = "rows of a fused adapter of GPT-2 stand at the top of its array",
    test = "-n 1 spec/hub/adapters_spec.lua -f gpt2",
  },
  {
    name = "917-peft-shared", file = "lua/ganymede/hub/adapters.lua",
    find = [[  local shared = file.meta[SHARED] == "true"]],
    replace = [[  local shared = false]],
    breaks = "one adapter of queries, keys and values becomes three when it is read again",
    test = "spec/hub/adapters_spec.lua -f 'three with one A'",
  },
  {
    name = "918-peft-alpha", file = "lua/ganymede/hub/adapters.lua",
    find = [[  return found or config.lora_alpha]],
    replace = [[  return config.lora_alpha]],
    breaks = "alpha_pattern is ignored",
    test = "spec/hub/adapters_spec.lua -f llama",
  },
  {
    name = "919-initial-reshaped", file = "lua/ganymede/hub/initial.lua",
    find = [[    if shown(shape[2]) ~= shown(shape[3]) then]],
    replace = [[    if shape[2][2] ~= shape[3][2] then]],
    breaks = "a parameter with another number of rows is loaded",
    test = "spec/hub/initial_spec.lua -f 'another head'",
  },
  {
    name = "920-initial-strict", file = "lua/ganymede/hub/initial.lua",
    find = [[opt.strict and bad then]],
    replace = [[false then]],
    breaks = "strict refuses nothing",
    test = "spec/hub/initial_spec.lua -f 'as far as they fit'",
  },
  {
    name = "921-layer-decay", file = "lua/ganymede/optim/layer_decay.lua",
    find = [[decay ^ (#list - i)]],
    replace = [[decay ^ (#list - i + 1)]],
    breaks = "the head has less than the full rate",
    test = "spec/hub/initial_spec.lua -f 'fall by a factor'",
  },
  {
    name = "922-chat-begin", file = "lua/ganymede/text/answers.lua",
    find = [[      local before, with = render(i - 1, true), render(i, false)]],
    replace = [[      local before, with = render(i - 1, false), render(i, false)]],
    breaks = "the prompt of an answer is learnt, too",
    test = "spec/data/chat_spec.lua -f 'Python finds: chatml'",
  },
  {
    name = "923-chat-end", file = "lua/ganymede/text/answers.lua",
    find = [[      for k = first, last_of(tokenizer, ids, first, last) do own[k] = true end]],
    replace = [[      for k = first, last do own[k] = true end]],
    breaks = "what the template writes after the end of a turn is learnt",
    test = "spec/data/chat_spec.lua -f 'Python finds: chatml'",
  },
  {
    name = "924-chat-straddle", file = "lua/ganymede/text/answers.lua",
    find = [[    if tokenizer:decode(tail):sub(1, #rest) == rest then return i end]],
    replace = [[    if tokenizer:decode(tail):sub(1, #rest) == rest then return same end]],
    breaks = "a token that begins before an answer is learnt",
    test = "spec/data/chat_spec.lua -f 'Python finds'",
  },
  {
    name = "925-chat-width", file = "lua/ganymede/data/loader.lua",
    find = [[    xs[k], ys[k] = self:read(piece, width)]],
    replace = [[    xs[k], ys[k] = self:read(piece, width_of(self.dataset, piece))]],
    breaks = "pieces of a batch differ in length",
    test = "spec/data/chat_spec.lua -f 'fills batches'",
  },
  {
    name = "926-generate-adapter", file = "lua/ganymede/cli/generate.lua",
    find = [[gm.load_adapter(model, args.adapter) end]],
    replace = [[gm.lora(model) end]],
    breaks = "generate does not read the adapter",
    test = "spec/parallel/tuning_spec.lua -f 'generate writes'",
  },
  {
    name = "927-freeze", file = "lua/ganymede/train/model.lua",
    find = [[  if settings.freeze then lora.freeze(model, settings.freeze) end]],
    replace = [[]],
    breaks = "the setting freeze does nothing",
    test = "spec/train/launch_spec.lua -f 'every one'",
  },
}
