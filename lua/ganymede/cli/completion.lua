--- Makes the completion of command lines for bash and zsh from the parsers of the verbs.
--
--     completion.bash(), completion.zsh()     the text of a file
--
-- bash completes verbs, options, choices, keys of --set and names for help; elsewhere it completes files. zsh completes
-- the same, and shows what each word does.
-- @module ganymede.cli.completion
local cli = require "ganymede.cli"
local reference = require "ganymede.reference"
local verbs = require "ganymede.cli.describe"

local completion = {}

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- Lists the keys of recipes that --set takes: the keys that do not hold other keys.
local function settings()
  local keys = {}
  for _, entry in ipairs(reference.all()) do
    local fields = entry.declared and entry.declared.fields
    if entry.kind == "setting" and not (fields and next(fields)) then keys[#keys + 1] = entry.name .. "=" end
  end
  return keys
end

-- Lists the names that `help` explains, without names that contain a colon: shells split words at a colon.
local function names()
  local list = { "recipe", "environment" }
  for _, verb in ipairs(cli.verbs) do list[#list + 1] = verb end
  for _, entry in ipairs(reference.all()) do
    if entry.kind ~= "verb" and not entry.name:find ":" then list[#list + 1] = entry.name end
  end
  return list
end

local function takes_file(option) return option.argument and option.argument:find "FILE" ~= nil end
local function takes_folder(option) return option.argument and option.argument:find "DIR" ~= nil end

-- ---------------------------------------------------------------- bash

-- Returns the lines of `case` that complete the argument of an option.
local function bash_options(about, lines)
  for _, option in ipairs(about.options) do
    local answer
    if option.choices then
      answer = ("COMPREPLY=($(compgen -W %s -- \"$word\"))"):format(quoted(table.concat(option.choices, " ")))
    elseif option.names[1] == "--set" then
      answer = "COMPREPLY=($(compgen -W \"$_ganymede_settings\" -- \"$word\")); compopt -o nospace 2>/dev/null"
    elseif takes_folder(option) then
      answer = "COMPREPLY=($(compgen -d -- \"$word\"))"
    elseif takes_file(option) then
      answer = "COMPREPLY=($(compgen -f -- \"$word\"))"
    elseif option.argument then
      answer = "COMPREPLY=()"
    end
    if answer then
      lines[#lines + 1] = ("        %s:%s) %s; return ;;"):format(about.name,
        table.concat(option.names, "|" .. about.name .. ":"), answer)
    end
  end
end

local function flags_of(about)
  local list = {}
  for _, option in ipairs(about.options) do
    for _, name in ipairs(option.names) do list[#list + 1] = name end
  end
  return table.concat(list, " ")
end

local bash = [==[
# bash completion of ganymede: `ganymede docs --completion bash` has written it.
_ganymede_settings=@settings@
_ganymede_names=@names@

_ganymede() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W @verbs@ -- "$word"))
        return
    fi
    case $verb:$before in
@arguments@
    esac
    if [[ $word == -* ]]; then
        case $verb in
@flags@
        esac
        return
    fi
    case $verb in
        help) COMPREPLY=($(compgen -W "$_ganymede_names" -- "$word")) ;;
        *) COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}
complete -o filenames -F _ganymede ganymede ./ganymede
]==]

local function filled(text, parts)
  return (text:gsub("@(%a+)@", function(name) return parts[name] end))
end

--- Returns the text of the file for bash.
function completion.bash()
  local arguments, flags = {}, {}
  for _, name in ipairs(cli.verbs) do
    local about = verbs.describe(name)
    bash_options(about, arguments)
    flags[#flags + 1] = ("            %s) COMPREPLY=($(compgen -W %s -- \"$word\")) ;;"):format(name,
      quoted(flags_of(about)))
  end
  return filled(bash, { settings = quoted(table.concat(settings(), " ")), names = quoted(table.concat(names(), " ")),
    verbs = quoted(table.concat(cli.verbs, " ")), arguments = table.concat(arguments, "\n"),
    flags = table.concat(flags, "\n") })
end

-- ---------------------------------------------------------------- zsh

-- Escapes a text for the brackets of _arguments.
local function zsh_text(text) return (text:gsub("[%[%]:\\]", "\\%0"):gsub("\n%s*", " ")) end

local function zsh_action(option)
  if option.choices then return "(" .. table.concat(option.choices, " ") .. ")" end
  if option.names[1] == "--set" then return "{compadd -S \"\" -- $_ganymede_settings}" end
  if takes_folder(option) then return "_files -/" end
  return takes_file(option) and "_files" or " "
end

local function zsh_option(option)
  local shown = table.concat(option.names, ",")
  local name = #option.names > 1 and ("'(%s)'{%s}"):format(table.concat(option.names, " "), shown)
    or (option.repeats and "'*'" or "") .. shown
  local takes = option.argument and (":%s:%s"):format(zsh_text(option.argument), zsh_action(option)) or ""
  return ("            %s%s \\"):format(name, quoted(("[%s]%s"):format(zsh_text(option.text or ""), takes)))
end

local function zsh_arguments(about)
  local lines = {}
  for i, argument in ipairs(about.arguments) do
    local place = argument.most > 1 and "*" or tostring(i)
    local action = about.name == "help" and "($_ganymede_names)" or "_files"
    local said = ("%s:%s:%s"):format(place, zsh_text(argument.name), action)
    lines[#lines + 1] = ("            %s \\"):format(quoted(said))
  end
  return lines
end

local zsh = [==[
#compdef ganymede
# zsh completion of ganymede: `ganymede docs --completion zsh` has written it.
typeset -ga _ganymede_settings _ganymede_names _ganymede_verbs
_ganymede_settings=(@settings@)
_ganymede_names=(@names@)
_ganymede_verbs=(
@verbs@
)

_ganymede() {
    if ((CURRENT == 2)); then
        _describe verb _ganymede_verbs
        return
    fi
    local verb=$words[2]
    shift words
    ((CURRENT--))
    case $verb in
@cases@
    esac
}

_ganymede "$@"
]==]

local function zsh_list(list)
  local out = {}
  for i, word in ipairs(list) do out[i] = quoted(word) end
  return table.concat(out, " ")
end

--- Returns the text of the file for zsh.
function completion.zsh()
  local cases, described = {}, {}
  for _, name in ipairs(cli.verbs) do
    local about = verbs.describe(name)
    described[#described + 1] = "    " .. quoted(name .. ":" .. zsh_text(about.summary))
    local lines = { ("        %s) _arguments -s \\"):format(name) }
    for _, option in ipairs(about.options) do lines[#lines + 1] = zsh_option(option) end
    for _, line in ipairs(zsh_arguments(about)) do lines[#lines + 1] = line end
    lines[#lines] = lines[#lines]:gsub(" \\$", " ;;")
    cases[#cases + 1] = table.concat(lines, "\n")
  end
  return filled(zsh, { settings = zsh_list(settings()), names = zsh_list(names()),
    verbs = table.concat(described, "\n"), cases = table.concat(cases, "\n") })
end

return completion
