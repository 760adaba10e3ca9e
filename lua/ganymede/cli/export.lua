--- ganymede export CHECKPOINT DIR: writes the model of a checkpoint in Hugging Face's format, or as plain arrays.
--
-- One process does it, whatever mesh, mode and stage the checkpoint is of, and never holds more than one tensor and its
-- adapter. `transformers` loads the folder; Python's `safetensors` reads the arrays.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machine = require "ganymede.base.machine"
local session = require "ganymede.job.session"

local verb = { prints = true, summary = "write the model of a checkpoint for others: transformers, safetensors" }

verb.examples = {
  "ganymede export runs/tuned tuned",
  "ganymede export runs/gpt_text/checkpoints/step-00001200 out --plain",
  "ganymede export runs/tuned tuned --dtype bf16 --max-file 2G",
}

function verb.arguments(parser)
  parser:argument("checkpoint", "a checkpoint, the folder of some (the newest counts), or the folder of a run")
  parser:argument("out", "the folder that is written; it must be new, or empty")
  parser:option("--dtype", "the type of floating numbers (default: that of the checkpoint)"):choices { "f32", "bf16",
    "f16", "f64" }
  parser:option("--max-file", "the most bytes of arrays in a file, such as 2G; more becomes several files and an index "
    .. "(default 5G)"):argname "BYTES"
  parser:flag("--plain", "write the tensors under the names that they have here, of any model, without config.json")
  parser:flag("--all", "with --plain: also the tensors of the optimizer and of averages")
  parser:option("--config", "a folder whose config.json says what the model is, where the checkpoint does not")
    :argname "DIR"
  parser:option("--tokenizer", "a folder with the tokenizer, whose files are copied"):argname "DIR"
end

local function check(args)
  if args.all and not args.plain then failure(2, "--all goes with --plain") end
  if args.plain and args.config then failure(2, "--config says what a model is; --plain does not ask") end
  if args.plain and args.tokenizer then failure(2, "--tokenizer goes with a model, not with --plain") end
  if #failure.about(args.out, core.list_folder, args.out) > 0 then
    failure(2, "%s: is there and not empty; name a new folder", args.out)
  end
  if args.tokenizer and not require("ganymede.text.tokenizer").is_in(args.tokenizer) then
    failure(2, "--tokenizer %s: has no tokenizer.json or tokenizer.model", args.tokenizer)
  end
  if not args.max_file then return 5000000000 end
  local most, why = machine.bytes_of(args.max_file)
  return most or failure(2, "--max-file %s: %s", args.max_file, why)
end

local function export(args, most)
  require "ganymede.models"
  local done = require("ganymede.hub.export").checkpoint(args.checkpoint, args.out, {
    plain = args.plain, all = args.all, dtype = args.dtype, max_file_bytes = most, config = args.config,
    files = args.tokenizer,
  })
  local copied = #done.files > 0 and "; copied " .. table.concat(done.files, ", ")
    or done.has_tokens and "; no tokenizer is beside it, and --tokenizer DIR copies one" or ""
  print(("%s: %d arrays of %s%s"):format(args.out, done.arrays, done.path, copied))
end

function verb.run(args) session.alone(export, args, check(args)) end

return verb
