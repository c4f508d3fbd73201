package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// TestPatienceAfterUnmet: a step after one that was not met waits at most 5 s for its wants.
func TestPatienceAfterUnmet(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before         []string
		patience, want time.Duration
	}{
		"every step before was met": {nil, time.Minute, time.Minute},
		"a step before was not met": {[]string{"step 1: no"}, time.Minute, 5 * time.Second},
		"the patience is shorter":   {[]string{"step 1: no"}, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := player{opts: RunOptions{Patience: tt.patience}, unmet: tt.before}
				began := time.Now()
				unmet := p.awaitWants(t.Context(), &scenario.Step{}, func() []string { return []string{"CPUs are 1"} })
				if took := time.Since(began); took != tt.want || !slices.Equal(unmet, []string{"CPUs are 1"}) {
					t.Errorf("it waited %s and returned %q; wanted %s", took, unmet, tt.want)
				}
			})
		})
	}
}
