package placement

import (
	"errors"
	"testing"
)

// TestElsewhere: where another program decides, nobody pays for CPUs of its own, and none shares a part of the node.
func TestElsewhere(t *testing.T) {
	reason := errors.New("another program decides")
	got := Terms{CountBasis: CountWholeRequest, Key: "k", SharesFraction: true, Chooses: true}.WithoutGrants(reason)
	if got.CountBasis != CountNone || got.Key != "" || got.SharesFraction || !got.Chooses || !errors.Is(got.NoGrantReason, reason) {
		t.Errorf("terms are %+v", got)
	}
}
