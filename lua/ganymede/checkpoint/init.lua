--- Checkpoints: global tensors, saved whole or not at all, verified when opened (host/checkpoint/checkpoint.h).
--
--     local path = checkpoint.save("runs/x/checkpoints", { tensors = { { name =, tensor = } },
--                                   meta = { step = 1200, ... } }, { keep_last = 3 })
--     local ck = checkpoint.open(checkpoint.latest("runs/x/checkpoints"))
--     ck:read_into("head.weight", model.head.weight)
--     ck:close()
--
-- meta is anything JSON can hold (ganymede.base.json says what that is); its `step` names the checkpoint. On several
-- ranks each writes the blocks that are its own and reads those that it needs, whatever the layout was that wrote
-- them; the folder must be one that all ranks see. The stages of a pipeline hold different tensors, and a shared one on
-- several of them: what is saved is the union, and each rank reads what it holds.
-- Damaged files raise failure(5); what the system refuses (disk full, no permission) failure(1) when
-- saving, after which older checkpoints are as they were.
-- The trap: save, start, finish, open, verify and latest are collective: all ranks call them, or none.
-- @module ganymede.checkpoint
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local checkpoint = {}

local function code_of(status, kind) return kind == "corrupt" and 5 or status end

local function checked(status, first, message, kind, ...)
  if first == nil and message ~= nil then failure(code_of(status, kind), "%s", message) end
  return first, message, kind, ...
end

-- ---------------------------------------------------------------- agreeing

-- What fn(...) sends is counted as what checkpoints cost.
local function counted(fn, ...)
  local before = core.comm_set_phase "checkpoint"
  return failure.protect(function() core.comm_set_phase(before) end, fn, ...)
end

-- Texts of all ranks, by rank from 1.
local function share(text)
  if core.world() == 1 then return { text } end
  return counted(require("ganymede.job.ranks").texts, text)
end

local function has_stages()
  for _, axis in ipairs(core.mesh()) do
    if axis.name == "pipeline" and axis.size > 1 then return true end
  end
  return false
end

-- Texts of the ranks that differ from this one only in their stage, by stage; of a mesh that has stages.
local function share_along_pipeline(text) return counted(core.comm_exchange, core.comm_group "pipeline", text) end

-- kind and message of a failed call as one text, and back; "" where it did not fail.
local function pack_failure(first, message, kind)
  return first == nil and (kind or "invalid") .. "\n" .. tostring(message) or ""
end

-- Of the ranks' texts the first that tells of a failure -> message, kind, rank from 0; or nil.
local function first_failure(texts)
  for i, text in ipairs(texts) do
    if text ~= "" then
      local kind, message = text:match "^([^\n]*)\n(.*)$"
      return message, kind, i - 1
    end
  end
end

-- The same failure on all ranks, which the rank it befell tells the user (see ganymede.job.ranks).
local function raise_agreed(code, message, rank)
  local err = failure.new(code, message)
  err.agreed, err.peer = true, rank ~= core.rank() or nil
  error(err, 0)
end

--- For what each rank has checked for itself: raises the error of the lowest rank that has one, on all ranks.
function checkpoint.agree(ok, err)
  if core.world() == 1 then return ok or error(err, 0) end
  local message, code, rank = first_failure(share(ok and "" or failure.code(err) .. "\n" .. failure.text(err)))
  if message then raise_agreed(tonumber(code), message, rank) end
end

--- Raises what finish returned, on all ranks; rank 0 tells the user.
function checkpoint.raise(message, kind) raise_agreed(code_of(1, kind), message, 0) end

--- The names of a list of { name =, tensor = } on this rank's stage and on all others, as a set. Collective.
function checkpoint.names_on_stages(entries)
  local list, set = {}, {}
  for i, entry in ipairs(entries) do list[i] = entry.name .. "\0" end
  local text = table.concat(list)
  for _, names in ipairs(has_stages() and share_along_pipeline(text) or { text }) do
    for name in names:gmatch "%Z+" do set[name] = true end
  end
  return set
end

-- ---------------------------------------------------------------- saving

local save_options = {
  keep_last = { type = "integer", min = 1, optional = true,
    doc = "the number of checkpoints that are kept, including this one; default: all" },
}

local start_options = {
  keep_last = save_options.keep_last,
  spared = { type = "integer", min = 0, optional = true, doc = "the step of a checkpoint that stays beside these" },
  background = { type = "boolean", default = true,
    doc = "whether the checkpoint is written from a copy while the program goes on" },
  snapshot_limit = { type = "integer", min = 1, optional = true,
                     doc = "the bytes of memory that a rank's copy may take; default, and at most: half of the memory "
                       .. "that the system has available, divided by the number of ranks" },
  apart = { type = "table", optional = true, hidden = true,
    doc = "the ranks share no folder, and each saves its part for itself: token (16 digits, the same on all ranks), "
      .. "sharers (ranks of this machine); see ganymede.checkpoint.neighbours" },
}

local function step_of(state)
  local step = nil
  if type(state) ~= "table" then
    error("checkpoint.save: what is saved must be a table { tensors =, meta = { step = } }; got " .. tostring(state), 3)
  end
  if type(state.meta) == "table" then step = state.meta.step end
  if type(step) ~= "number" or step < 0 or step ~= math.floor(step) then
    error("checkpoint.save: meta.step must be a whole number, not " .. tostring(step), 3)
  end
  return step
end

local Saving = {} -- a save under way: path, step, background, apart (whether it is); finish()
Saving.__index = Saving

local under_way -- one at a time: its folder's leftovers are the next one's to remove

-- fn(...), which may fail on one stage alone -> its result; raises the failure of one rank on all of them.
local function on_all_stages(fn, ...)
  local ok, result = pcall(fn, ...)
  checkpoint.agree(ok, result)
  return result
end

-- Stages hold different tensors and tell each other which: some 250 bytes a tensor, so that every save can.
local function new_save(dir, step, state, opt)
  local names, tensors = {}, {}
  for i, entry in ipairs(state.tensors) do names[i], tensors[i] = entry.name or entry[1], entry.tensor or entry[2] end
  local function new(stages)
    return (checked(1, core.checkpoint_new {
      folder = dir, step = step, names = names, tensors = tensors, stages = stages, meta = json.encode(state.meta),
      keep_last = opt.keep_last or 0, spared = opt.spared or -1, background = opt.background,
      snapshot_limit = opt.snapshot_limit or 0, apart = opt.apart ~= nil,
      sharers = opt.apart and opt.apart.sharers or 0 }))
  end
  if not has_stages() then return new() end
  local list = on_all_stages(function() return (checked(1, core.checkpoint_pieces(names, tensors))) end)
  return on_all_stages(new, share_along_pipeline(list))
end

-- Rank 0 makes the folder -> token for all ranks, or nil and why not.
local function prepare(handle)
  local said = ""
  if core.rank() == 0 then
    local token, message, kind = core.checkpoint_prepare(handle)
    said = token and "token\n" .. token or pack_failure(token, message, kind)
  end
  local text, kind = first_failure { share(said)[1] }
  if kind == "token" then return text end
  return nil, text, kind
end

-- Until this rank's save is so far, or some seconds; failures of other ranks get through, and Ctrl-C.
local function wait(handle, state, seconds)
  local last = core.now() + seconds
  repeat
    if core.checkpoint_wait(handle, state, 0.02) then return true end
    if core.world() > 1 then core.comm_poll() end
  until core.now() > last
  return false
end

-- Seconds between two meetings of the ranks, well below the time after which a rank that does not come is taken for one
-- that hangs.
local function between_meetings()
  local timeout = core.world() > 1 and core.comm_timeout() or 0
  return timeout > 0 and math.min(5, timeout / 4) or 5
end

-- Until the saves of all ranks are so far -> what tell(), called then, says on each. A disk may be slower than ranks
-- wait for each other, so they meet in between.
local function wait_for_all(handle, state, tell)
  local seconds = between_meetings()
  while true do
    local texts = share(wait(handle, state, seconds) and "." .. tell() or "")
    local all = true
    for i, text in ipairs(texts) do
      all = all and text ~= ""
      texts[i] = text:sub(2)
    end
    if all then return texts end
  end
end

-- What became of it on all ranks: nil, or message and kind. apart: nobody merges the parts.
local function outcome(handle, apart)
  local message, kind, rank = first_failure(wait_for_all(handle, "written", function()
    return pack_failure(core.checkpoint_part(handle))
  end))
  if apart then return message and ("rank %d: %s"):format(rank, message), kind end
  if core.rank() == 0 then
    if not message then core.checkpoint_all_written(handle)
    else core.checkpoint_give_up(handle, rank == 0 and message or ("rank %d: %s"):format(rank, message)) end
  end
  return first_failure { wait_for_all(handle, "done", function()
    return core.rank() == 0 and pack_failure(core.checkpoint_result(handle)) or ""
  end)[1] }
end

-- Forgets what C holds, and stops it where it still runs.
local function close(self)
  core.checkpoint_free(self.handle)
  self.handle = nil
  if under_way == self then under_way = nil end
end

--- Waits for the end of the save -> its path; or nil, why not (the same on all ranks), and the kind of failure.
-- It may be asked again. What interrupts it (Ctrl-C, another rank's failure) ends the save as well.
function Saving:finish()
  if self.handle then
    self.message, self.kind = "it was interrupted", "io"
    self.message, self.kind = failure.protect(function() close(self) end, outcome, self.handle, self.apart)
  end
  if self.message then return nil, self.message, self.kind end
  return self.path
end

--- Whether this rank's part of the save is over. It waits for nobody.
function Saving:is_over() return not self.handle or core.checkpoint_wait(self.handle, "done", 0) == true end

--- For a program that ends with an error: without a word to other ranks, gives this rank's writing at most so many
-- seconds and stops it.
function Saving:leave(seconds)
  if not self.handle then return end
  core.checkpoint_wait(self.handle, "done", seconds)
  self.message, self.kind = "the program ended before it was over", "io"
  close(self)
end

--- Begins to save state = { tensors = list of { name =, tensor = } or { name, tensor }, meta = table } as a new folder
-- in dir, and returns as soon as the tensors may change again -> object with path, step, background (false: it was
-- written at once, for want of memory) and finish(). Waits for the save before. What is wrong with the state is
-- raised; what the system refuses waits in finish.
function checkpoint.start(dir, state, opt)
  opt = options.check("checkpoint.start", start_options, opt, 2)
  if under_way then under_way:finish() end
  local step = step_of(state)
  local self = setmetatable({ step = step, handle = new_save(dir, step, state, opt), apart = opt.apart ~= nil }, Saving)
  local token, message, kind = opt.apart and opt.apart.token
  if not token then token, message, kind = prepare(self.handle) end
  if not token then
    self.message, self.kind = message, kind
    close(self)
    return self
  end
  under_way = self
  self.path, self.background = checked(1, core.checkpoint_start(self.handle, token))
  return self
end

--- Saves and waits for the end of it -> path. state as for start.
function checkpoint.save(dir, state, opt)
  opt = options.check("checkpoint.save", save_options, opt, 2)
  step_of(state)
  local saving = checkpoint.start(dir, state, { keep_last = opt.keep_last, background = false })
  local path, message, kind = saving:finish()
  if not path then checkpoint.raise(message, kind) end
  return path
end

-- ---------------------------------------------------------------- finding

--- Checkpoints in dir, oldest first: list of { step =, path = }. Complete by name, not verified.
function checkpoint.list(dir)
  local steps, paths = checked(2, core.checkpoint_list(dir))
  local list = {}
  for i, step in ipairs(steps) do list[i] = { step = step, path = paths[i] } end
  return list
end

-- Opens with all ranks sharing the checksums of data -> handle; or nil, message, kind, the rank that found it. Where
-- one rank is not content, none is. partly: what is here of joined parts, whose checksums are known to be right.
local function open_shared(path, alone, partly)
  local handle, message, kind
  if partly then handle, message, kind = core.checkpoint_open_partly(path)
  else handle, message, kind = core.checkpoint_open(path, alone and 0 or core.rank(), alone and 1 or core.world()) end
  if alone then return handle, message, kind, core.rank() end
  local why, what, rank = first_failure(share(pack_failure(handle, message, kind)))
  if not why then return handle end
  if handle then core.checkpoint_close(handle) end
  return nil, why, what, rank
end

--- true, or nil and what is wrong: all checksums, all geometry.
function checkpoint.verify(path)
  local handle, message = open_shared(path)
  if not handle then return nil, message end
  core.checkpoint_close(handle)
  return true
end

-- Rank 0's list, on all ranks.
local function agreed_list(dir)
  if core.world() == 1 then return checkpoint.list(dir) end
  local ok, list = true, nil
  if core.rank() == 0 then ok, list = pcall(checkpoint.list, dir) end
  local text = core.rank() == 0 and (ok and json.encode(json.array(list)) or "") or ""
  text = share(text)[1]
  if text == "" then
    if not ok then error(list, 0) end
    raise_agreed(2, dir .. ": rank 0 cannot list it", 0)
  end
  return json.decode(text, "list of checkpoints")
end

--- The newest checkpoint in dir that is whole, or nil: rank 0's list, which all ranks verify together. Damaged ones
-- are skipped, and said: say(line) is called for each, by default a warning in the log of rank 0.
function checkpoint.latest(dir, say) return (checkpoint.search(dir, say)) end

--- The same, and how many checkpoints there are, damaged ones too.
function checkpoint.search(dir, say)
  say = say or function(line)
    if core.rank() == 0 then log.warn("%s", line) end
  end
  local list = agreed_list(dir)
  for i = #list, 1, -1 do
    local ok, message = checkpoint.verify(list[i].path)
    if ok then return list[i].path, #list end
    say(("checkpoint of step %d is damaged, trying the one before: %s"):format(list[i].step, message))
  end
  return nil, #list
end

-- ---------------------------------------------------------------- opening

local Checkpoint = {}
Checkpoint.__index = Checkpoint

local open_options = {
  alone = { type = "boolean", default = false,
    doc = "whether only this rank opens the checkpoint, and verifies all of it" },
  partly = { type = "boolean", default = false, hidden = true,
    doc = "whether it is one of joined parts (ganymede.checkpoint.neighbours), of which files may be missing here" },
}

--- Opens and verifies. Fields: path, meta, world (ranks that saved it).
function checkpoint.open(path, opt)
  if path == nil then
    error("checkpoint.open needs a checkpoint; got nil, which is what checkpoint.latest gives where there is none", 2)
  end
  opt = options.check("checkpoint.open", open_options, opt, 2)
  local handle, message, kind, rank = open_shared(path, opt.alone, opt.partly)
  if not handle then raise_agreed(code_of(2, kind), message, rank) end
  local text, world = core.checkpoint_meta(handle)
  return setmetatable({ handle = handle, path = path, meta = json.decode(text, path .. ": meta"), world = world },
    Checkpoint)
end

--- The ranks (from 0) that saved what this rank would read of a list of { name =, tensor = }, as a set. Not collective.
function Checkpoint:files(entries)
  local names, tensors = {}, {}
  for i, entry in ipairs(entries) do names[i], tensors[i] = entry.name, entry.tensor end
  return (checked(2, core.checkpoint_files(self.handle, names, tensors)))
end

--- Names of the tensors, sorted.
function Checkpoint:names() return core.checkpoint_names(self.handle) end

function Checkpoint:has(name) return core.checkpoint_info(self.handle, name) ~= nil end

--- { name, dtype, shape (global), bytes, boxes } or nil.
function Checkpoint:info(name) return core.checkpoint_info(self.handle, name) end

--- Fills tensor (this rank's block of it, whatever its layout) with the stored one of that name; shape and dtype must
-- be equal. opt.cast: convert the dtype; opt.offset: read the box of tensor's shape that begins there (from 1 in each
-- dimension).
function Checkpoint:read_into(name, tensor, opt)
  opt = options.check("read_into", {
    cast = { type = "boolean", default = false, doc = "whether the numbers are converted to the dtype of the tensor" },
    offset = { type = "list", optional = true,
      doc = "the list of the positions, from 1, at which the box begins in each dimension" },
  }, opt, 2)
  local offset
  if opt.offset then
    offset = {}
    for i, at in ipairs(opt.offset) do offset[i] = at - 1 end
  end
  checked(2, core.checkpoint_read(self.handle, name, tensor, opt.cast, offset))
  return tensor
end

--- Closes the files; what was read stays.
function Checkpoint:close() core.checkpoint_close(self.handle) end

signature.export("saving", Saving, ":")
signature.export("checkpoint", Checkpoint, ":")
return missing.guard("checkpoint", signature.export("checkpoint", checkpoint, nil, nil,
  { save = save_options, start = start_options, open = open_options }))
