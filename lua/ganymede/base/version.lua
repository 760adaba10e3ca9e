--- The version of Ganymede, as `ganymede version` prints it.
return "0.1.0"
