package keeper

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/process"
)

// Process is the actor of the fields ProcessLimit, ProcessIO and ProcessSched (package process).
type Process struct{ Writer *process.Writer }

// Act sets a value for the threads of a container, once.
func (p Process) Act(t Target, v lifecycle.Value, threads func() ([]int, error)) (State, error) {
	return joinState(p.Writer.Apply(t.Owner, v, threads))
}

// Forget deletes the record of which values were set for an owner that has ended.
func (p Process) Forget(owner string) error {
	p.Writer.Forget(owner)
	return nil
}

// Tidy has nothing to remove: attributes end with their threads.
func (Process) Tidy() error { return nil }
