package qrm

// ValuesOf converts an answer.
var ValuesOf = valuesOf
