package placement

import (
	"errors"
	"testing"
)

// TestElsewhere: if another program decides who owns CPUs, the policy counts no CPUs for owners, and owners share
// no CPUs of a pool.
func TestElsewhere(t *testing.T) {
	reason := errors.New("another program decides")
	got := Terms{CountBasis: CountWholeRequest, Key: "k", SharesFraction: true, Chooses: true}.WithoutGrants(reason)
	if got.CountBasis != CountNone || got.Key != "" || got.SharesFraction || !got.Chooses || !errors.Is(got.NoGrantReason, reason) {
		t.Errorf("terms are %+v", got)
	}
}
