package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trimtab/trimtab/internal/sleep"
)

// watch checks a node for the duration of pause, at least once. It returns an error as soon as the node is less healthy
// than before the rollout. The parameter violations is the number of requests and decided values of the node that were
// not in force before the rollout.
func (r *Rollout) watch(ctx context.Context, n Node, violations int, pause time.Duration) error {
	end := time.Now().Add(pause)
	for {
		if err := r.checkHealth(ctx, n, violations); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if !sleep.For(ctx, min(left, time.Second)) {
			return errInterrupted
		}
	}
}

// checkHealth returns an error if a node is less healthy than before the rollout. The parameter violations is the
// number of requests and decided values of the node that were not in force before the rollout.
func (r *Rollout) checkHealth(ctx context.Context, n Node, violations int) error {
	s, err := r.status(ctx, n)
	switch {
	case err != nil:
		return err
	case !s.Attached():
		return errors.New("unready: the agent is not attached to the runtime any more: " + s.AttachmentStates())
	case s.Violations() > violations:
		return fmt.Errorf("%d values and requests are not in force (before the rollout: %d); kubectl trimtab status %s shows them", s.Violations(), violations, n.Name)
	}
	ready, err := r.Cluster.isReady(ctx, n.Agent)
	if err == nil && !ready {
		err = fmt.Errorf("unready: pod %s/%s is not ready", n.Agent.Namespace, n.Agent.Pod)
	}
	return err
}

// status reads an agent's status. If the agent does not answer, status repeats the call until AgentTimeout has passed,
// so that a short failure does not stop the rollout.
func (r *Rollout) status(ctx context.Context, n Node) (Status, error) {
	late := time.Now().Add(r.AgentTimeout)
	for {
		s, err := r.requestStatus(ctx, n)
		var lost *UnreachableError
		if !errors.As(err, &lost) || time.Now().After(late) {
			return s, err
		}
		if !sleep.For(ctx, time.Second) {
			return s, errInterrupted
		}
	}
}

// requestStatus reads an agent's status with one call.
func (r *Rollout) requestStatus(ctx context.Context, n Node) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return Ask[Status](ctx, r.Cluster, n.Agent, nil, "status")
}

// awaitApplied waits until a node's agent has applied the present version of a ConfigMap.
func (r *Rollout) awaitApplied(ctx context.Context, n Node, name string) error {
	layer, version := r.Change.Maps.version(name)
	late := time.Now().Add(r.AgentTimeout)
	for {
		s, err := r.status(ctx, n)
		if err != nil {
			return err
		}
		is, err := s.HasApplied(layer, version)
		if err != nil || is {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("the agent has not applied %s within %s; kubectl trimtab status %s shows the agent's state", layer, r.AgentTimeout, n.Name)
		}
		if !sleep.For(ctx, time.Second) {
			return errInterrupted
		}
	}
}
