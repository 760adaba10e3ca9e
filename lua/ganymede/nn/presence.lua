--- Presence says which modules of a tree this rank holds. In a pipeline every rank builds the whole tree, so that
-- names, sites of random numbers and ties are those of the serial model. It marks the modules of other stages as
-- absent.
--
-- Absent modules are declared, counted and printed. Their parameters are never allocated and do not appear in
-- parameters() and state(). Reading or calling them is an error that says where they are. If a present module is tied
-- to a parameter of an absent one, this rank still holds that parameter, under its first name.
-- The trap: marking releases tensors that are already allocated, so handles to them (an optimizer's too) become
-- invalid.
-- @module ganymede.nn.presence
local presence = {}

--- Returns the module and the entry that allocate a parameter of m: m's own, or those that it is tied to.
function presence.owner_of(m, entry)
  local tied = entry.tied
  if tied then return presence.owner_of(tied.module, tied.module._module.parameters[tied.name]) end
  return m, entry
end

--- Returns whether this rank holds the tensor of m's own parameter, for m or for a present module that is tied to it.
function presence.is_held(m, entry)
  if not m._module.absent then return true end
  for _, tie in ipairs(entry.ties or {}) do
    local tied = tie.entry.tied
    local still = tied and tied.module == m and tied.name == entry.name -- it may have been tied elsewhere or assigned
    if still and presence.is_held(tie.module, tie.entry) then return true end
  end
  return false
end

--- Returns whether a module has a buffer of this name, released or not. own: the state of the module.
function presence.is_buffer(own, name)
  for _, entry in ipairs(own.order) do
    if entry.buffer == name then return true end
  end
  return false
end

--- Raises an error at the caller's caller: m, or its parameter or buffer `name`, is on another stage.
function presence.refuse(m, name)
  local path = m:path()
  if name then path = path == "" and name or path .. "." .. name end
  error(("%s is not on this rank but on %s, which holds that part of the model"):format(path, m._module.absent), 3)
end

local function let_go_parameter(m, p)
  local owner, entry = presence.owner_of(m, p)
  if entry.tensor and not presence.is_held(owner, entry) then
    entry.tensor:release()
    entry.tensor = nil
  end
end

local function let_go(m)
  local own = m._module
  for _, entry in ipairs(own.order) do
    if entry.parameter then let_go_parameter(m, own.parameters[entry.parameter]) end
    if entry.buffer and own.buffers[entry.buffer] then
      own.buffers[entry.buffer]:release()
      own.buffers[entry.buffer] = nil
    end
  end
end

local function check_buffers(m)
  for _, entry in ipairs(m._module.order) do
    if entry.buffer and m._module.buffers[entry.buffer] == nil then
      error(("'%s' of %s was released when the module became absent; build the model again"):format(entry.buffer,
        m:path()), 3)
    end
  end
end

--- Sets whether this rank holds module m and all modules below it. where: who holds it otherwise, "stage 1". An absent
-- module releases its tensors. If it becomes present again, its parameters have their initial numbers; if it had
-- buffers, that is an error.
function presence.set(m, on, where)
  local list = m:modules()
  for _, each in ipairs(list) do
    if on then check_buffers(each) end
    each._module.absent = not on and (where or "another rank") or nil
  end
  for _, each in ipairs(on and {} or list) do let_go(each) end
  return m
end

return presence
