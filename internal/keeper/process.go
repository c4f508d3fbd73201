package keeper

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/process"
)

// Process is the actor of the fields ProcessLimit, ProcessIO and ProcessSched (package process).
type Process struct{ Writer *process.Writer }

// Act sets a value for the threads of a container. It does nothing if it has set this value for the container before.
func (p Process) Act(t Target, v lifecycle.Value, threads func() ([]int, error)) (State, error) {
	return joinState(p.Writer.Apply(t.Owner, v, threads))
}

// Forget deletes the record of the values that Act has set for a container. Call it after the container has ended.
func (p Process) Forget(owner string) error {
	p.Writer.Forget(owner)
	return nil
}

// Tidy does nothing: an attribute of a thread ends with the thread.
func (Process) Tidy() error { return nil }
