package placement

import (
	"errors"
	"testing"
)

// TestElsewhere: if another program decides who owns CPUs, the policy counts no CPUs for owners, and owners share
// no CPUs of a pool.
func TestElsewhere(t *testing.T) {
	reason := errors.New("another program decides")
	for basis, want := range map[CountBasis]CountBasis{CountWholeRequest: CountNone, CountWholePart: CountNone, CountByResources: CountByResources} {
		got := Terms{CountBasis: basis, Key: "k", SharesFraction: true, ChoosesCPUsOrMemory: true}.WithoutGrants(reason)
		if got.CountBasis != want || (got.Key == "") != (want == CountNone) || got.SharesFraction || !got.ChoosesCPUsOrMemory || !errors.Is(got.NoGrantReason, reason) {
			t.Errorf("terms for basis %d are %+v", basis, got)
		}
	}
}
