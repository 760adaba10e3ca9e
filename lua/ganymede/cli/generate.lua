--- ganymede generate DIR: a model that others have trained, or that `gm.export_model` has written, continues prompts.
--
-- Prompts are a text (--prompt), JSON lines with a field "prompt" or "messages" (--prompts), or what a user types
-- (--chat). --adapter adds what fine-tuning has learnt. With -n N the model lies on N ranks as --set parallel... says;
-- every rank chooses the same tokens, and rank 0 prints them. With --set zero=3 or --set offload... its parameters rest
-- in parts or on a disk between their uses. What no option says of the choice of tokens, generation_config.json says.
local config = require "ganymede.config"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local generation = require "ganymede.generation"
local few_bits = require "ganymede.nn.few_bits"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local offload_setting = require "ganymede.optim.offload_setting"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local resting = require "ganymede.train.resting"
local sampling = require "ganymede.generation.sampling"
local session = require "ganymede.job.session"
local stages = require "ganymede.generation.stages"
local zero_setting = require "ganymede.optim.zero_setting"

local verb = { prints = true, summary = "let a model continue texts, or talk with it" }

verb.examples = {
  "ganymede generate SmolLM2-135M-Instruct --prompt Once --max-tokens 20",
  "ganymede generate SmolLM2-135M-Instruct --adapter tuned --prompt Once",
  "ganymede generate SmolLM2-135M-Instruct --chat --temperature 0.7 --top-p 0.9",
  "ganymede generate SmolLM2-135M-Instruct -n 3 --set 'parallel={tensor={size=3,mode=\"1d\"}}' --prompts in.jsonl",
}

-- A number that is at least `least`, and at most `most` or any.
local function number(least, most)
  return function(text)
    local n = tonumber(text)
    if n and n >= least and n <= (most or math.huge) and n < math.huge then return n end
    return nil, ("'%s' is no number from %g%s"):format(text, least, most and " to " .. most or " on")
  end
end

function verb.arguments(parser)
  parser:argument("model", "the folder of the model: config.json, model.safetensors, tokenizer.json; or a checkpoint, "
    .. "or a .gguf file")
  parser:option("--tokenizer", "the folder of the tokenizer, where it is not that of the model; bytes: each byte "
    .. "is a token"):argname "DIR"
  parser:option("--adapter", "adapters for the model: a folder in PEFT's format, or a checkpoint of a run with lora")
    :argname "DIR"
  parser:option("--prompt", "a text to continue"):argname "TEXT"
  parser:option("--prompts", "JSON lines with the field prompt, a text, or messages, a conversation"):argname "FILE"
  parser:flag("--chat", "talk: each line that is typed is answered")
  parser:option("--max-tokens", "the most tokens that are added to a prompt (default: what "
    .. "generation_config.json says, or 128)"):argname "N"
    :convert(session.integer(1))
  parser:option("--temperature", "what scores are divided by before a token is drawn; 0: the likeliest (default: "
    .. "what generation_config.json says of this and the next four, or 0)")
    :argname "T":convert(number(0))
  parser:option("--top-k", "draw among so many likeliest tokens"):argname "N":convert(session.integer(0))
  parser:option("--top-p", "draw among the likeliest tokens with this probability together"):argname "P"
    :convert(number(0, 1))
  parser:option("--min-p", "draw among tokens with this part of the probability of the likeliest"):argname "P"
    :convert(number(0, 1))
  parser:option("--repetition-penalty", "what scores of tokens in the text are divided by"):argname "X"
    :convert(number(0))
  parser:option("--stop", "a text that ends an answer; may be repeated"):argname "TEXT":count "*"
  parser:option("--seed", "the seed of the draws"):argname "N":convert(session.integer(0))
  parser:option("--page", "the positions of a page of kept keys and values (default 16)"):argname "N"
    :convert(session.integer(1))
  parser:option("--pages", "how many pages all prompts share; more prompts than fit wait (default: enough for all)")
    :argname "N":convert(session.integer(1))
  parser:option("--cache-memory", "bytes of these pages on a rank, such as 64M, in place of --pages"):argname "BYTES"
    :convert(machine.bytes_of)
  parser:option("--dtype", "the type of the numbers (default f32)"):choices { "f32", "bf16", "f16", "f64" }
  parser:option("--quantize", "round the weights of products to so many bits"):choices { "int8", "int4" }
  parser:option("--json", "write one JSON document with all answers"):argname "FILE"
  parser:option("--set", "set a key of the settings, such as parallel={tensor={size=2,mode=\"1d\"}}; may be repeated")
    :count "*":argname "KEY=VALUE"
  parser:option("--limit-memory", "bytes that tensors may take, such as 512M"):argname "BYTES"
    :convert(machine.bytes_of)
  parser:option("-n --ranks", "number of ranks"):argname "N":convert(session.integer(1))
  parser:option("--threads", "threads of each rank (default: its share of the cores)"):argname "N"
    :convert(session.integer(1))
  parser:option("--device", "the device that computes (default: cpu)"):choices { "cpu", "cuda" }
end

-- The settings that generation uses; others are refused.
local used = { parallel = true, zero = true, offload = true, deterministic = true, matmul_precision = true,
  time_products = true }

local function refuse_unused(sets)
  for _, set in ipairs(sets or {}) do
    local key = set:match "^[%w_]+"
    if key and not used[key] then
      failure(2, "--set %s: generation does not use %s; it uses %s", set, key,
        table.concat(options.sorted_keys(used), ", "))
    end
  end
end

-- Refuses parts of `zero` and `offload` that say something of gradients and optimizers, which there are none of.
local function refuse_training(settings)
  local divided = zero_setting.options(settings.zero)
  if divided.stage == 1 or divided.stage == 2 then
    failure(2, "zero = %d divides optimizer states and gradients, and generation has none; zero = 3 divides parameters",
      divided.stage)
  end
  for _, kind in ipairs(settings.offload and offload_setting.kinds or {}) do
    if kind ~= "parameters" and (settings.offload[kind] or "none") ~= "none" then
      failure(2, "offload.%s: generation has no %s; offload.parameters = \"disk\" lets weights rest on a disk", kind,
        kind == "optimizer" and "optimizer states" or kind)
    end
  end
  if settings.offload and settings.offload.memory then
    failure(2, "offload.memory: a rehearsal of training chooses then; give parameters = \"disk\" and --limit-memory")
  end
end

-- Ranks agree on what was timed at the end of a training step (ganymede.job.products), which generation has not.
local function refuse_timing(settings)
  if settings.time_products == true and core.world() > 1 then
    failure(2, "time_products = true: generation on %d ranks times nothing, since each rank would choose for itself; "
      .. "give time_products = FILE, the products.json of a run", core.world())
  end
end

local function one_source(args)
  local given = 0
  for _, name in ipairs { "prompt", "prompts", "chat" } do given = given + (args[name] and 1 or 0) end
  if given ~= 1 then failure(2, "give one of --prompt, --prompts and --chat") end
  if args.chat and args.json then failure(2, "--json goes with --prompt and --prompts") end
  if args.chat and (args.ranks or 1) > 1 then failure(2, "--chat talks on one rank; leave -n out") end
  if not args.json then return end
  local ok, why = core.check_writable(args.json) -- now, and not when all answers are there
  if not ok then failure(2, "--json: %s", why) end
end

-- The text of a conversation as the model wants it.
local function conversation(tokenizer, messages)
  return tokenizer:encode(tokenizer:chat(messages, { add_generation_prompt = true }), { special = false })
end

-- The prompt of a line of JSON: a text, or the tokens of a conversation; refuses what is neither.
local function prompt_of(line, place, tokenizer)
  local function bad(why) failure(2, "%s %s", place, why) end
  local entry = json.of_line(line, place)
  if type(entry) ~= "table" then bad "is no object with prompt or messages" end
  local text, messages = entry.prompt, entry.messages
  if text ~= nil and messages ~= nil then bad "has prompt and messages; one of them is enough" end
  if type(text) == "string" then
    if text == "" then bad "has an empty prompt" end
    return text
  end
  if text ~= nil then bad "has a prompt that is no text" end
  if type(messages) ~= "table" or #messages == 0 then bad "has neither prompt nor messages" end
  local fine, ids = pcall(conversation, tokenizer, messages)
  if not fine then failure(2, "%s: %s", place, failure.text(ids)) end
  return ids
end

-- A list of texts or lists of tokens.
local function prompts_of(args, tokenizer)
  if args.prompt == "" then failure(2, "--prompt is empty; give a text to continue") end
  if args.prompt then return { args.prompt } end
  local list, at = {}, 0
  local text = machine.read(args.prompts) or failure(2, "--prompts %s: cannot be read", args.prompts)
  for line in (text:sub(-1) == "\n" and text or text .. "\n"):gmatch "(.-)\r?\n" do
    at = at + 1
    if line:find "%S" then
      list[#list + 1] = prompt_of(line, ("%s: line %d"):format(args.prompts, at), tokenizer)
    end
  end
  if #list == 0 then failure(2, "--prompts %s: has no lines", args.prompts) end
  return list
end

-- How keys and values are kept, as gm.generate takes it; nil: as it is without a word.
local function cache_of(args)
  local cache = { page = args.page, pages = args.pages, memory = args.cache_memory }
  return next(cache) and cache or nil
end

local function options_of(args, model, tokenizer, prompts)
  return {
    prompts = prompts, tokenizer = tokenizer, max_tokens = args.max_tokens, temperature = args.temperature,
    top_k = args.top_k, top_p = args.top_p, min_p = args.min_p, repetition_penalty = args.repetition_penalty,
    seed = args.seed, stop = args.stop, cache = cache_of(args), stop_tokens = model.source.stop_tokens,
  }
end

-- Says how far the weights have moved.
local function tell_rounding(model)
  local report = few_bits.report(model:materialize())
  if not report then return end
  log.info("weights of %d bits in %d layers: relative error %.3f %% on average, worst %.3f %% in %s",
    report.worst.bits, #report.layers, 100 * report.mean, 100 * report.worst.error, report.worst.path)
end

local function write(text)
  io.stdout:write(text)
  io.stdout:flush()
end

-- Returns the results. shown: the text before the answer, which is written as it comes, on a line that ends also where
-- the answer is given up, unless nothing of it was written; nil: nothing is written.
local function generated(model, opt, shown)
  local begun = false
  local function begin()
    if not begun then write(shown) end
    begun = true
  end
  if shown then
    opt.on_text = function(_, piece)
      begin()
      write(piece)
    end
  end
  local ok, results = xpcall(failure.about("generate", generation.prepared, model, opt), failure.handler)
  if ok and shown then begin() end
  if begun then write "\n" end
  if not ok then error(results, 0) end
  return results
end

local function answer(args, model, tokenizer)
  local prompts = prompts_of(args, tokenizer)
  local opt = options_of(args, model, tokenizer, prompts)
  local alone = #prompts == 1 and not args.json and core.rank() == 0
  local results = generated(model, opt, alone and (args.prompt or "") or nil)
  if core.rank() ~= 0 then return end
  for i, result in ipairs(results) do
    if not alone and not args.json then print(("%d\t%s"):format(i, (result.completion:gsub("\n", "\\n")))) end
    for _, name in ipairs { "ids", "tokens" } do result[name] = json.array(result[name]) end
  end
  log.info("%.1f tokens a second, %.1f of prompts", results[1].tokens_per_second, results[1].prefill_tokens_per_second)
  if args.json then core.write_whole(args.json, json.encode { results = json.array(results) } .. "\n") end
end

-- The answer to a conversation, written as it comes. Ctrl-C stops it, and so the verb.
local function reply(args, model, tokenizer, messages)
  local opt = options_of(args, model, tokenizer, { conversation(tokenizer, messages) })
  return generated(model, opt, "")[1].completion
end

local function talk(args, model, tokenizer)
  local messages, terminal = {}, core.terminal_open()
  log.info "an empty line, Ctrl-D or Ctrl-C ends the conversation"
  while true do
    local line, interrupted, terminated = terminal:read "> "
    if interrupted then write "\n" end
    if terminated then failure(143, "stopped by SIGTERM") end
    if not line or line == "" then return end
    messages[#messages + 1] = { role = "user", content = line }
    messages[#messages + 1] = { role = "assistant", content = reply(args, model, tokenizer, messages) }
  end
end

local function tokenizer_of(args, model)
  local gm, source = require "ganymede", model.source
  if args.tokenizer then return gm.tokenizer(args.tokenizer) end
  if args.model:find "%.gguf$" then return require("ganymede.hub.gguf").tokenizer(source) end
  local files = source.files
  if not (files and require("ganymede.text.tokenizer").is_in(files)) then
    failure(2, "%s: there is no tokenizer beside it; --tokenizer names a folder that has one, or is bytes for a model "
      .. "of bytes (which was trained with data of type Text)", args.model)
  end
  return gm.tokenizer(files)
end

local function run(args)
  local gm = require "ganymede"
  launcher.connect(args)
  session.open_device(args)
  local given = { name = "generate", model = { type = "Pretrained", path = args.model } }
  refuse_unused(args.set)
  local settings = config.resolve(given, { file = "generate", sets = args.set, in_code = true }).config
  refuse_training(settings)
  refuse_timing(settings)
  session.join(settings, { flags = { model = args.model, adapter = args.adapter } })
  session.use_ops(settings)
  if args.dtype then gm.set_default_dtype(args.dtype) end
  local model = gm.pretrained(args.model, { quantize = args.quantize })
  local tokenizer = tokenizer_of(args, model)
  if args.adapter then gm.load_adapter(model, args.adapter) end
  stages.of(model)
  resting.begin(model, settings, context.current().plan.pipeline)
  tell_rounding(model)
  -- merged, a token costs no more than without; weights of few bits would lose what the adapter has learnt
  if args.adapter and not args.quantize then gm.merge_lora(model) end
  for name, value in pairs(sampling.completed(args, model.source.files)) do args[name] = value end
  if args.chat then talk(args, model, tokenizer) else answer(args, model, tokenizer) end
  ranks.from_first(function() return nil end) -- all end together
end

function verb.run(args)
  one_source(args)
  if not launcher.supervises(args) then
    session.with_signals({ after = function() end }, launcher.without_exit, function() run(args) end)
    return
  end
  return launcher.supervise(args)
end

return verb
