package agent

import "github.com/trimtab/trimtab/internal/dra"

// newClaimSource makes the source of the CPUs that resource claims give to containers.
func newClaimSource(o Options, specs *cdiSpecs) *dra.Source {
	return dra.New(dra.Options{Checkpoint: o.Config.Paths.DRACheckpoint, Devices: specs.variables, Log: o.Log})
}
