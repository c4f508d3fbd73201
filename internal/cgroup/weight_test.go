package cgroup

import "testing"

// TestRuntimeWeight has the weights that runc 1.5.2 wrote for shares.
func TestRuntimeWeight(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 512: 59, 1024: 100, 2048: 174, 262144: 10000} {
		if got := RuntimeWeight(shares); got != want {
			t.Errorf("%d shares: weight %d, want %d", shares, got, want)
		}
	}
}
