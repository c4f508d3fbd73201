package cgroup

// fakePartition is a cpuset partition.
type fakePartition struct{}

func (f *Fake) effectiveCPUs(g *fakeGroup) IDs {
	if g == f.root || f.version == V1 {
		return g.cpus
	}
	above := f.effectiveCPUs(g.parent)
	if own := g.cpus.And(above); !own.Empty() {
		return own
	}
	return above
}

func (f *Fake) cpusChanged(*fakeGroup, IDs)                {}
func (f *Fake) endPartition(*fakeGroup)                    {}
func (f *Fake) mayGoOffline(IDs) error                     { return nil }
func (f *Fake) partitionClash(*fakeGroup, fakeCPUSet) bool { return false }
