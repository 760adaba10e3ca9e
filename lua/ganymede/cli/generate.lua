--- ganymede generate DIR: a model that others have trained, or that `gm.export_model` has written, continues prompts.
--
-- Prompts are a text (--prompt), JSON lines with a field "prompt" or "messages" (--prompts), or what a user types
-- (--chat). With -n N the model lies on N ranks as --set parallel... says; every rank chooses the same tokens, and rank
-- 0 prints them.
local config = require "ganymede.config"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local few_bits = require "ganymede.nn.few_bits"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local ranks = require "ganymede.job.ranks"
local session = require "ganymede.job.session"

local verb = { prints = true, summary = "let a model continue texts, or talk with it" }

verb.examples = {
  "ganymede generate SmolLM2-135M-Instruct --prompt Once --max-tokens 20",
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
  parser:argument("model", "the folder of the model: config.json, model.safetensors, tokenizer.json")
  parser:option("--prompt", "a text to continue"):argname "TEXT"
  parser:option("--prompts", "JSON lines with the field prompt, a text, or messages, a conversation"):argname "FILE"
  parser:flag("--chat", "talk: each line that is typed is answered")
  parser:option("--max-tokens", "the most tokens that are added to a prompt (default 128)"):argname "N"
    :convert(session.integer(1))
  parser:option("--temperature", "what scores are divided by before a token is drawn (default 0: the likeliest)")
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
  parser:option("--dtype", "the type of the numbers (default f32)"):choices { "f32", "bf16", "f16", "f64" }
  parser:option("--quantize", "round the weights of products to so many bits"):choices { "int8", "int4" }
  parser:option("--json", "write one JSON document with all answers"):argname "FILE"
  parser:option("--set", "set a key of the settings, such as parallel={tensor={size=2,mode=\"1d\"}}; may be repeated")
    :count "*":argname "KEY=VALUE"
  parser:option("-n --ranks", "number of ranks"):argname "N":convert(session.integer(1))
  parser:option("--threads", "threads of each rank (default: its share of the cores)"):argname "N"
    :convert(session.integer(1))
  parser:option("--device", "the device that computes (default: cpu)"):choices { "cpu", "cuda" }
end

local function one_source(args)
  local given = 0
  for _, name in ipairs { "prompt", "prompts", "chat" } do given = given + (args[name] and 1 or 0) end
  if given ~= 1 then failure(2, "give one of --prompt, --prompts and --chat") end
  if args.chat and args.json then failure(2, "--json goes with --prompt and --prompts") end
  if args.chat and (args.ranks or 1) > 1 then failure(2, "--chat talks on one rank; leave -n out") end
end

-- The text of a conversation as the model wants it.
local function conversation(tokenizer, messages)
  return tokenizer:encode(tokenizer:chat(messages, { add_generation_prompt = true }), { special = false })
end

-- A list of texts or lists of tokens.
local function prompts_of(args, tokenizer)
  if args.prompt then return { args.prompt } end
  local list = {}
  local text = machine.read(args.prompts) or failure(2, "--prompts %s: cannot be read", args.prompts)
  for line in text:gmatch "[^\n]+" do
    local entry = json.decode(line, ("%s: line %d"):format(args.prompts, #list + 1))
    local found = type(entry) == "table" and (entry.prompt or entry.messages)
    if type(found) ~= "string" and type(found) ~= "table" then
      failure(2, "%s: line %d has neither prompt nor messages", args.prompts, #list + 1)
    end
    list[#list + 1] = type(found) == "string" and found or conversation(tokenizer, found)
  end
  if #list == 0 then failure(2, "--prompts %s: has no lines", args.prompts) end
  return list
end

local function options_of(args, model, tokenizer, prompts)
  return {
    prompts = prompts, tokenizer = tokenizer, max_tokens = args.max_tokens, temperature = args.temperature,
    top_k = args.top_k, top_p = args.top_p, min_p = args.min_p, repetition_penalty = args.repetition_penalty,
    seed = args.seed, stop = args.stop, stop_tokens = model.source.stop_tokens,
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

local function answer(args, model, tokenizer)
  local gm = require "ganymede"
  local prompts = prompts_of(args, tokenizer)
  local opt = options_of(args, model, tokenizer, prompts)
  local alone = #prompts == 1 and not args.json and core.rank() == 0
  if alone then
    if args.prompt then write(args.prompt) end
    opt.on_text = function(_, piece) write(piece) end
  end
  local results = gm.generate(model, opt)
  if core.rank() ~= 0 then return end
  if alone then write "\n" end
  for i, result in ipairs(results) do
    if not alone and not args.json then print(("%d\t%s"):format(i, (result.completion:gsub("\n", "\\n")))) end
    for _, name in ipairs { "ids", "tokens" } do result[name] = json.array(result[name]) end
  end
  log.info("%.1f tokens a second, %.1f of prompts", results[1].tokens_per_second, results[1].prefill_tokens_per_second)
  if args.json then core.write_whole(args.json, json.encode { results = json.array(results) } .. "\n") end
end

local function talk(args, model, tokenizer)
  local gm = require "ganymede"
  local messages = {}
  log.info "an empty line, or Ctrl-D, ends the conversation"
  while true do
    write "> "
    local line = io.read "*l"
    if not line or line == "" then return end
    messages[#messages + 1] = { role = "user", content = line }
    local opt = options_of(args, model, tokenizer, { conversation(tokenizer, messages) })
    opt.on_text = function(_, piece) write(piece) end
    local result = gm.generate(model, opt)[1]
    write "\n"
    messages[#messages + 1] = { role = "assistant", content = result.completion }
  end
end

local function run(args)
  local gm = require "ganymede"
  launcher.connect(args)
  session.open_device(args)
  local given = { name = "generate", model = { type = "Pretrained", path = args.model } }
  local settings = config.resolve(given, { file = "generate", sets = args.set, in_code = true }).config
  session.join(settings, { flags = { model = args.model } })
  if args.dtype then gm.set_default_dtype(args.dtype) end
  local model, tokenizer = gm.pretrained(args.model, { quantize = args.quantize }), gm.tokenizer(args.model)
  tell_rounding(model)
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
