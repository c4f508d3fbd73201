package keeper

import (
	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// CoreSched is the actor of the field CoreSched.
type CoreSched struct{ Groups *coresched.Groups }

// Act gives a cgroup's threads the cookie of the group that the value names. An empty name removes the cookie.
func (c CoreSched) Act(_ Target, v lifecycle.Value, threads func() ([]int, error)) (State, error) {
	return joinState(c.Groups.Join(v.Text, threads))
}

// Forget does nothing: the kernel removes a cookie when the last thread with the cookie ends.
func (CoreSched) Forget(string) error { return nil }

// Tidy does nothing: the kernel removes a cookie when the last thread with the cookie ends.
func (CoreSched) Tidy() error { return nil }
