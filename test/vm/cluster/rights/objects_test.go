package rights

import "github.com/trimtab/trimtab/test/vm/cluster/objects"

// What tests of rights are made of, by short names.
const (
	release   = objects.Release
	namespace = objects.Namespace
)

var (
	of     = objects.Of
	parse  = objects.Parse
	create = objects.Create
	chart  = objects.Chart
	token  = objects.Token
	as     = objects.As
)
