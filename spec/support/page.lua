--- The fenced blocks of a page in Markdown, run in the order in which a reader types them.
--
--     page.blocks(text) -> list of { language, options, text, line, section }
--     page.sections(blocks) -> titles of the sections that have blocks, in order
--     page.runner(name, text, folder, program):section(title)      runs what has not run up to the end of that section
--
-- The word behind the fence says what a block is, and what follows it how it is run:
--
--     lua file=NAME     a file, written into the folder
--     sh [status=N]     commands, run there up to the first that fails, with status N (default 0: none fails)
--     text              what the commands before it print; it must be there
--     console           a first line `$ COMMAND`, then lines `> INPUT` that it is given, each above what it answers
--
-- Of a text, a line `...` stands for any lines and `...` in a line for any characters. Runs of blanks are alike, whole
-- numbers must be equal. A number with a point may differ by 1e-3 of itself: processors (AVX2, AVX-512) add up in
-- different orders, which training carries on. One with four digits behind the point or more was rounded: it may differ
-- by one in the last.
-- The trap: a block that is none of these is an error, so that a page holds nothing that is not tried.
local shell = require "spec.support.shell"

local page = {}

--- All blocks of a page in order; section: the title of the last heading above, "" where there is none.
function page.blocks(text)
  local blocks, open, section, number = {}, nil, "", 0
  for line in (text:gsub("\n*$", "\n")):gmatch "(.-)\n" do
    number = number + 1
    local info = line:match "^```(.*)$"
    if open and info == "" then
      open.text, open.lines = table.concat(open.lines, "\n") .. "\n", nil
      blocks[#blocks + 1], open = open, nil
    elseif open then
      table.insert(open.lines, line)
    elseif info then
      open = { language = info:match "^%S*", options = {}, lines = {}, line = number, section = section }
      for key, value in info:gmatch "(%w+)=(%S+)" do open.options[key] = value end
    else
      section = line:match "^#+%s+(.-)%s*$" or section
    end
  end
  if open then error(("line %d: this block has no end"):format(open.line), 2) end
  return blocks
end

--- Titles of the sections that have blocks, in order.
function page.sections(blocks)
  local titles = {}
  for _, block in ipairs(blocks) do
    if titles[#titles] ~= block.section then titles[#titles + 1] = block.section end
  end
  return titles
end

-- ---------------------------------------------------------------- comparing

local NUMBER = "[%-+]?%d*%.%d+"

local function literal(text) return (text:gsub("%p", "%%%0"):gsub("%s+", "%%s+")) end

-- A Lua pattern of a line that captures its numbers with a point, and these numbers as they are written.
local function pattern_of(line)
  local out, numbers, at = { "^" }, {}, 1
  while at <= #line do
    local from, to = line:find(NUMBER, at)
    local dots = line:find("...", at, true)
    if dots and (not from or dots <= from) then
      out[#out + 1] = literal(line:sub(at, dots - 1)) .. ".-"
      at = dots + 3
    elseif from then
      out[#out + 1] = literal(line:sub(at, from - 1)) .. "(" .. NUMBER .. ")"
      numbers[#numbers + 1] = line:sub(from, to)
      at = to + 1
    else
      out[#out + 1] = literal(line:sub(at))
      break
    end
  end
  return table.concat(out) .. "%s*$", numbers
end

-- One in the last digit of a measured number as it is written: 1e-4 of "0.0297"; 0 of "0.01", which was set to that.
local function last_digit(written)
  local digits = #written:match "%.(%d+)"
  return digits < 4 and 0 or 10 ^ -digits
end

local function is_near(wanted, got)
  local a, b = tonumber(wanted), tonumber(got)
  return b ~= nil and math.abs(a - b) <= math.max(1e-3 * math.abs(a), 1.001 * last_digit(wanted))
end

--- Is this what the line of a page stands for?
function page.is_line(wanted, got)
  local pattern, numbers = pattern_of(wanted)
  local found = { got:match(pattern) }
  if #found == 0 then return false end
  for i, number in ipairs(numbers) do
    if not is_near(number, found[i]) then return false end
  end
  return true
end

local function lines_of(text)
  local lines = {}
  for line in text:gmatch "[^\n]*" do
    if line:find "%S" then lines[#lines + 1] = line end
  end
  return lines
end

--- nil, or the first line of a text that what was printed does not have at its place. Blank lines do not count.
function page.difference(text, printed)
  local wanted, got = lines_of(text), lines_of(printed)
  local failed, furthest = {}, 0
  local function match(i, k)
    furthest = math.max(furthest, i)
    if i > #wanted then return k > #got end
    if failed[i * (#got + 2) + k] then return false end
    local same
    if wanted[i] == "..." then
      same = match(i + 1, k) or k <= #got and match(i, k + 1)
    else
      same = k <= #got and page.is_line(wanted[i], got[k]) and match(i + 1, k + 1)
    end
    failed[i * (#got + 2) + k] = not same
    return same
  end
  if match(1, 1) then return nil end
  return wanted[furthest] or "(nothing)"
end

-- ---------------------------------------------------------------- running

local Runner = {}
Runner.__index = Runner

--- name: of the page, for messages; program: what the page calls `ganymede`.
function page.runner(name, text, folder, program)
  os.execute("mkdir -p " .. shell.quote(folder .. "/.bin"))
  local starter = shell.write(folder .. "/.bin/ganymede", ('#!/bin/sh\nexec %s "$@"\n'):format(shell.quote(program)))
  os.execute("chmod +x " .. shell.quote(starter))
  return setmetatable({ name = name, folder = folder, list = page.blocks(text), done = 0 }, Runner)
end

function Runner:fail(block, why, ...) error(("%s:%d: %s"):format(self.name, block.line, why:format(...)), 0) end

-- Commands in the folder -> what they print on both outputs, and the status. Two minutes, so that nothing hangs.
local function run(self, commands)
  shell.write(self.folder .. "/.commands", "exec 2>&1\nset -e\n" .. commands)
  local line = "cd %s && PATH=$PWD/.bin:$PATH GM_LOG=2 GANYMEDE_HISTORY= exec timeout -k 5 300 sh .commands"
  local result = shell.run(line:format(shell.quote(self.folder)))
  return result.out .. result.err, result.code
end

local function compare(self, block, text, printed)
  local line = page.difference(text, printed)
  if line then self:fail(block, "this line is not printed at its place:\n  %s\nwhat is printed:\n%s", line, printed) end
end

local kinds = {}

function kinds.lua(self, block)
  local name = block.options.file or self:fail(block, "a block of Lua needs file=NAME")
  shell.write(self.folder .. "/" .. name, block.text)
end

function kinds.sh(self, block)
  local wanted = tonumber(block.options.status or 0)
  local printed, status = run(self, block.text)
  if status ~= wanted then self:fail(block, "status %d, not %d:\n%s", status, wanted, printed) end
  self.printed = printed
end

function kinds.text(self, block)
  if not self.printed then self:fail(block, "a text stands behind the commands that print it") end
  compare(self, block, block.text, self.printed)
  self.printed = nil
end

function kinds.console(self, block)
  local command, session = block.text:match "^%$ ([^\n]+)\n(.*)$"
  if not command then self:fail(block, "a console begins with `$ COMMAND`") end
  local typed, answers = {}, {}
  for line in session:gmatch "[^\n]+" do
    local input = line:match "^>+ (.*)$"
    table.insert(input and typed or answers, input or line)
  end
  shell.write(self.folder .. "/.typed", table.concat(typed, "\n") .. "\n")
  local printed, status = run(self, command .. " <.typed\n")
  if status ~= 0 then self:fail(block, "status %d:\n%s", status, printed) end
  compare(self, block, table.concat(answers, "\n"), printed)
end

--- Runs all blocks that have not run yet, up to the end of this section. A block that fails is not run again.
function Runner:section(title)
  local last = 0
  for i, block in ipairs(self.list) do
    if block.section == title then last = i end
  end
  while self.done < last do
    self.done = self.done + 1
    local block = self.list[self.done]
    local kind = kinds[block.language] or self:fail(block, "a block of kind '%s' is neither run nor compared",
      block.language)
    kind(self, block)
  end
end

return page
