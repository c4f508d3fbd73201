package placement_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/claims"
	"github.com/trimtab/trimtab/internal/placement/kubelet"
)

// namer is a policy with balloons.
type namer struct{ placement.Policy }

func (namer) BalloonOf(placement.Subject, int) string { return "balloon" }

// TestBalloonOf: the policies that only decide who owns CPUs have the balloons of the policy below them.
func TestBalloonOf(t *testing.T) {
	for _, p := range []placement.Policy{namer{}, kubelet.Policy{Policy: namer{}}, claims.Policy{Policy: namer{}}} {
		if name := placement.BalloonOf(p, placement.Subject{}, 0); name != "balloon" {
			t.Errorf("%T: %q", p, name)
		}
	}
	if name := placement.BalloonOf(kubelet.Policy{}, placement.Subject{}, 0); name != "" {
		t.Errorf("a policy without balloons: %q", name)
	}
}
