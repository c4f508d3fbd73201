package rights

import "github.com/trimtab/trimtab/test/vm/cluster/objects"

// Short names for helpers of package objects.
const (
	release   = objects.Release
	namespace = objects.Namespace
)

var (
	of     = objects.ClientFor
	parse  = objects.Parse
	create = objects.Create
	chart  = objects.Chart
	token  = objects.Token
	as     = objects.ClientWithToken
)
