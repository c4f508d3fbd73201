package none

import (
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestNone: the policy chooses nothing and takes no CPUs, and pools are as configured.
func TestNone(t *testing.T) {
	pools := &placement.Pools{Online: topology.SetOf(0, 1, 2, 3), Shared: topology.SetOf(1, 2, 3), Reclaimed: topology.SetOf(3)}
	p, in := Policy{}, &intent.Pod{}
	l := p.Layout(pools, placement.Demand{OwnedCPUs: topology.SetOf(1), Needs: placement.NeedsOf(map[placement.PoolID]int64{{}: 9000})})
	if got, _ := l.CPUs(placement.CPUGroup{Pool: placement.Shared}); got != topology.SetOf(2, 3) || l.SizesSharedPools() {
		t.Errorf("the shared pool has %v", got)
	}
	if t2 := p.Terms(nil, placement.Subject{Intent: in}); t2.ChoosesCPUsOrMemory || t2.CountBasis != placement.CountNone || t2.NoGrantReason != nil {
		t.Errorf("%+v", t2)
	}
	have := topology.SetOf(1, 2)
	if got, err := p.Choose(placement.View{}, placement.Subject{Intent: in}, placement.CPURequest{N: 1, UsableCPUs: have, OwnedCPUs: have}); err == nil || got.CPUs != have {
		t.Errorf("an owner keeps %v, %v", got.CPUs, err)
	}
	v := placement.View{Pools: pools, Layout: l}
	for class, want := range map[intent.Class]placement.PoolKind{
		intent.None: placement.Unclassified, intent.Shared: placement.Shared, intent.Reclaimed: placement.Reclaimed, intent.Dedicated: placement.Shared, intent.System: placement.Unclassified,
	} {
		in.Class.V = class
		if got := p.Share(v, placement.Subject{Intent: in}); got.Group.Pool != want {
			t.Errorf("class %v sits in %s, want %s", class, got.Group.Pool, want)
		}
	}
}
