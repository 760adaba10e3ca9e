-- overlap.lua - moves what goes between ranks to where published software begins it and waits for it.
--
--     overlap.products(lines, texts, how)       gathers and scatters of tensor ranks beside the products they feed
--     overlap.parameters(lines, texts, chunks)  gathers of updated parameters beside the next forward
--     overlap.none(lines, texts)                operations between tensor ranks beside nothing
--     overlap.nothing(lines, texts, stage)      every operation beside nothing, messages of a pipeline included
--
-- lines: the events of a record (host/plan/step_file.h), texts: its texts by number. Returns the events in a new order.
-- Nothing is added and nothing left out; the caller gives operations new ids, because these follow the order of begins.
local record = require "record"

local overlap = {}

local is_between = record.is_between

-- o NAME ABOUT DTYPE PATH SIZE FLOPS PRODUCTS BYTES SECONDS. Whether a dense layer multiplies there.
local function is_product(words, texts)
  return (words[1] == "o" or words[1] == "r") and words[8] ~= "0" and not texts[tonumber(words[2])]:find "^attention"
end

local function path_of(words, texts) return texts[tonumber(words[words[1] == "b" and 6 or 5])] end

-- Layers that userbuffers know; embeddings and the head are none of them.
local function has_buffers(path)
  return path and (path:find "%.attention%.qkv$" or path:find "%.attention%.output$" or path:find "%.mlp%.%a+$")
end

--- Lets a gather over tensor ranks move while the product that reads it runs, and a scatter while the product that it
-- takes does: the product works on the pieces that are there (Transformer Engine, userbuffers). Both take as long as
-- the longer one. how.whole_gathers: gathers of forward do not hide.
function overlap.products(lines, texts, how)
  local out, waits, held, product = {}, {}, nil, nil -- waits: path of a gather, by its id; product: { path, place }
  local function flush()
    if held then out[#out + 1], held = held.line, nil end
  end
  for _, line in ipairs(lines) do
    local words = record.words(line)
    local path = path_of(words, texts)
    if words[1] == "w" and waits[words[2]] then
      flush()
      held = { line = line, path = waits[words[2]] }
    elseif is_between(words, texts, "reduce_scatter", "tensor") and has_buffers(path) and product
      and product.path == path then
      table.insert(out, product.place, line)
      product = nil
    else
      if held and words[1] ~= "w" and path ~= held.path then flush() end
      out[#out + 1] = line
      if is_between(words, texts, "all_gather", "tensor") and has_buffers(path)
        and not (how.whole_gathers and texts[tonumber(words[7])] == "forward") then
        waits[words[2]] = path
      elseif is_product(words, texts) then
        product = { path = path, place = #out }
        flush()
      elseif words[1] == "b" then
        product = nil
      end
    end
  end
  flush()
  return out
end

-- The gathers of parameters behind the update, and the other lines. A gather: { begin, wait }.
local function parted(lines, texts)
  local gathers, of, rest = {}, {}, {}
  for _, line in ipairs(lines) do
    local words = record.words(line)
    if record.is_of_parameter(words, texts) then
      gathers[#gathers + 1] = { line }
      of[words[2]] = gathers[#gathers]
    elseif words[1] == "w" and of[words[2]] then
      of[words[2]][2] = line
    else
      rest[#rest + 1] = line
    end
  end
  return gathers, rest
end

-- The places of lines where a module with a matrix is used for the first time.
local function first_uses(lines, texts)
  local seen, places, n = {}, {}, 0
  for i, line in ipairs(lines) do
    local words = record.words(line)
    local path = (words[1] == "o" or words[1] == "r") and path_of(words, texts)
    if path and not seen[path] and (is_product(words, texts) or texts[tonumber(words[2])] == "embedding") then
      seen[path], n = true, n + 1
      places[i] = n
    end
  end
  return places, n
end

--- Lets parameters that were updated be gathered while the next forward runs. With chunks of a stage, gathers are a
-- chunk ahead of their use, and otherwise one gather (Megatron-LM core/distributed, overlap_param_gather, and
-- param_sync_func of core/pipeline_parallel/schedules.py; FSDP gathers a block while the one before it computes). A
-- record is one step of many alike, so the gathers behind its update are those before its forward. They and the modules
-- come in one order: of m gathers and n modules, the first k m / n belong to the first k modules.
function overlap.parameters(lines, texts, chunks)
  local gathers, rest = parted(lines, texts)
  local places, modules = first_uses(rest, texts)
  if #gathers == 0 or modules == 0 then return lines end
  local out, begun, done, ahead = {}, 0, 0, math.ceil(#gathers / (chunks > 1 and chunks or #gathers))
  local function begin()
    while begun < math.min(done + ahead, #gathers) do
      begun = begun + 1
      out[#out + 1] = gathers[begun][1]
    end
  end
  begin()
  for i, line in ipairs(rest) do
    local due = places[i] and math.ceil(places[i] * #gathers / modules) or 0
    while done < due do
      done = done + 1
      out[#out + 1] = gathers[done][2]
      begin()
    end
    out[#out + 1] = line
  end
  return out
end

--- Lets an operation between tensor ranks run beside nothing: it is waited for at once.
function overlap.none(lines, texts)
  local out, done = {}, {}
  for _, line in ipairs(lines) do
    local words = record.words(line)
    if words[1] ~= "w" or not done[words[2]] then out[#out + 1] = line end
    if words[1] == "b" and texts[tonumber(words[8])] == "tensor" then
      out[#out + 1], done[words[2]] = "w " .. words[2] .. " 0", true
    end
  end
  return out
end

-- b ID NAME ... PEER: whether a message goes to, or comes from, the stage before this one.
local function is_from_below(words, stage) return tonumber(words[9]) < stage end

--- Lets every operation run beside nothing, as with CUDA_LAUNCH_BLOCKING=1: it is waited for at once, a send and a
-- receive too. So two stages exchange messages in DeepSpeed's order (TrainSchedule of runtime/pipe/schedule.py), in
-- which no stage waits for ever: before a forward pass a stage receives first, and sends the gradient of the last
-- backward pass then; before a backward pass it sends what its last forward pass made, and receives a gradient then.
-- stage: of the record's rank.
function overlap.nothing(lines, texts, stage)
  local out, receives, gradient = {}, {}, nil -- receives: begins by id; gradient: the begin of a send that is late
  local function add(begin, id)
    out[#out + 1], out[#out + 2] = begin, "w " .. id .. " 0"
  end
  local function send_gradient()
    if gradient then add(gradient.line, gradient.id) end
    gradient = nil
  end
  for _, line in ipairs(lines) do
    local words = record.words(line)
    local name, id = words[1] == "b" and texts[tonumber(words[3])], words[2]
    if name == "receive" then receives[id] = line
    elseif name == "send" and is_from_below(words, stage) then gradient = { line = line, id = id }
    elseif name then
      if name ~= "send" and texts[tonumber(words[8])] ~= "tensor" then send_gradient() end -- there is no receive left
      add(line, id)
    elseif words[1] == "w" and receives[id] then
      local is_activation = is_from_below(record.words(receives[id]), stage)
      if not is_activation then send_gradient() end
      add(receives[id], id)
      send_gradient()
      receives[id] = nil
    elseif words[1] ~= "w" then out[#out + 1] = line end
  end
  send_gradient()
  return out
end

return overlap
