--- ganymede tokenize FILES: makes a file of tokens, which data.Tokens reads, of files of text; with --train, a
-- byte-level BPE tokenizer, with the merges that Python's `tokenizers` finds in the same texts.
--
-- What is done is kept beside the result, in OUT.part and OUT.state, every few seconds. The same command goes on from
-- there, whatever ended the first one; the result is the same to the byte.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local places = require "ganymede.base.places"
local session = require "ganymede.job.session"
local tokenizers = require "ganymede.text.tokenizer"

local verb = { keeps_words = true,
  summary = "make a file of tokens of texts, JSON lines and gzipped files, or train a tokenizer" }

verb.examples = {
  "ganymede tokenize book.txt --tokenizer model -o book.tokens",
  "ganymede tokenize part-*.jsonl.gz --tokenizer model/tokenizer.json --field body -o all.tokens",
  "ganymede tokenize part-*.jsonl.gz --train 32000 --add EOS -o model",
}

function verb.arguments(parser)
  parser:argument("files", "texts, and JSON lines (.jsonl, .ndjson, .json); all of them may be gzipped"):args "+"
  parser:option("--tokenizer", "the folder of a model, or a tokenizer.json"):argname "PATH"
  parser:option("-o --out", "the file of tokens; with --train, the folder of the tokenizer"):argname "PATH":count(1)
  parser:option("--field", "the name of the text in JSON lines"):argname "NAME":default "text"
  parser:flag("--lines", "each line of a text file is a text by itself; otherwise each file is")
  parser:option("--end", "a token that is put after each text"):argname "TOKEN"
  parser:flag("--no-special", "leave out the tokens that the tokenizer puts around each text")
  parser:option("--train", "train a tokenizer with a vocabulary of N tokens"):argname "N":convert(session.integer(257))
  parser:option("--add", "with --train: a special token, which gets one of the first numbers"):argname "TOKEN":count "*"
  parser:option("--threads", "number of threads; otherwise all cores"):argname "N":convert(session.integer(1))
end

local function checked(first, message, kind)
  if first == nil then failure(kind == "corrupt" and 5 or 2, "%s", message) end
  return first
end

-- The same of work that has begun: what then fails is no mistake of the command (a full disk).
local function done(first, message, kind)
  if first == nil then failure(kind == "corrupt" and 5 or kind == "io" and 1 or 2, "%s", message) end
  return first
end

local function size_of(path)
  local file = io.open(path, "rb")
  if not file then failure(2, "%s: cannot be opened", path) end
  local size = file:seek "end"
  file:close()
  return size
end

-- What must be equal for a run to go on where another has stopped.
local function fingerprint(args, tokenizer, finish)
  local files = {}
  for i, path in ipairs(args.files) do files[i] = { path = path, size = size_of(path) } end
  return json.encode { files = files, tokenizer = core.file_checksum(tokenizer.path), finish = finish,
    field = args.field, lines = args.lines or false, special = not args.no_special }
end

-- The place that an earlier run has left; nil if there is none.
local function earlier(args, state, mark)
  local text = machine.read(state)
  if not text then return nil end
  local ok, left = pcall(json.decode, text, state)
  if not ok or type(left) ~= "table" or type(left.place) ~= "table" then
    failure(5, "%s: is damaged; remove it and %s.part to begin anew", state, args.out)
  end
  if left.mark ~= mark then
    failure(2, "%s.part was begun with other files, options or another tokenizer; remove it and %s to begin anew",
      args.out, state)
  end
  log.info("going on after %.0f texts, %.0f tokens", left.place.documents, left.place.tokens)
  return left.place
end

-- Says now and then how far the work is, on one line of a terminal. first: the bytes of text that were done before.
local function progress(first)
  local began, said = core.now(), core.now()
  return function(place, total)
    local now = core.now()
    if log.level < 2 or (now - said < 5 and not place.done) then return end
    said = now
    local rate = (place.text - first) / 1e6 / math.max(now - began, 1e-9)
    log.info("file %d of %d: %.0f texts, %.1f MB, %.0f tokens, %.1f MB/s", math.min(place.file + 1, total), total,
      place.documents, place.text / 1e6, place.tokens, rate)
  end
end

local function train(args)
  for _, name in ipairs { "tokenizer", "end", "no_special", "threads" } do
    if args[name] then failure(2, "--train does not go with --%s", (name:gsub("_", "-"))) end
  end
  local path = args.out .. "/tokenizer.json"
  if machine.read(path) then failure(2, "%s: is there already; remove it, or name another folder", path) end
  for _, name in ipairs(args.files) do size_of(name) end
  places.make(args.out) -- now, and not when all texts are read
  local text, size, kind = core.tokenizer_train(args.files,
    { field = args.field, lines = args.lines or false, size = args.train }, args.add)
  checked(text, size, kind)
  core.write_whole(path, text)
  if size < args.train then log.warn("the texts have no more pairs: %d tokens, not %d", size, args.train) end
  log.result(("%s: %d tokens"):format(path, size))
end

function verb.run(args)
  if args.train then return train(args) end
  if #args.add > 0 then failure(2, "--add goes with --train") end
  if not args.tokenizer then failure(2, "--tokenizer is needed, or --train to make one") end
  if machine.read(args.out) then failure(2, "%s: is there already; remove it, or name another with -o", args.out) end
  local tokenizer = tokenizers.open(args.tokenizer)
  local finish = args["end"] and (tokenizer:id(args["end"])
    or failure(2, "--end: the tokenizer has no token '%s'", args["end"])) or -1
  local state, mark = args.out .. ".state", fingerprint(args, tokenizer, finish)
  local place = earlier(args, state, mark)
  local work = checked(core.tokenize_open(tokenizer.handle, args.files, args.out,
    { field = args.field, lines = args.lines or false, special = not args.no_special, finish = finish,
      threads = args.threads or machine.cores() or 1 }, place))
  local say, kept = progress(place and place.text or 0), core.now()
  repeat
    place = done(core.tokenize_step(work))
    say(place, #args.files)
    if core.now() - kept > 2 and not place.done then
      done(core.tokenize_sync(work))
      core.write_whole(state, json.encode { mark = mark, place = place })
      kept = core.now()
    end
  until place.done
  done(core.tokenize_close(work, true))
  os.remove(state)
  log.result(("%s: %.0f tokens of %.0f texts, %.1f MB"):format(args.out, place.tokens, place.documents,
    place.text / 1e6))
end

return verb
