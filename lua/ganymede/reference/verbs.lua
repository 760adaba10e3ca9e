--- placeholder
return function() end
