package sim

import (
	"context"
	"errors"
	"time"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// Connector connects the agent and the kubelet to the embedded runtime. It determines how the kubelet's requests reach
// the runtime: directly, or through the agent's CRI proxy.
type Connector interface {
	// Configure sets the attachment and its sockets in a configuration. The sockets are in dir.
	Configure(c *config.Config, dir string)
	// Open connects to the runtime. It is called after each start of the runtime.
	Open(ctx context.Context, r *Runtime) error
	// Close disconnects from the runtime. It is called before each stop of the runtime, and again at the end of the
	// scenario.
	Close() error
	// Act performs a step's actions on pods and containers.
	Act(ctx context.Context, s *scenario.Step) error
	// AwaitReconnect waits after a restart of the runtime until the agent is connected again, but not longer than
	// patience.
	AwaitReconnect(ctx context.Context, patience time.Duration) error
}

// Repeater is a Connector whose kubelet repeats an update until the runtime reports the requested resources. A real
// kubelet repeats a resize in the same way.
type Repeater interface {
	// Repeat repeats the step's update if the runtime does not report the requested resources.
	Repeat(ctx context.Context, s *scenario.Step) error
}

// repeatPause is how long a kubelet waits before it repeats an update.
const repeatPause = time.Second

// nriConnector is the Connector of an agent that is an NRI plugin. The simulated kubelet then calls the runtime
// directly.
type nriConnector struct {
	runtime          *Runtime
	syncsBeforeClose int // the number of synchronisations when Close was called
}

func (*nriConnector) Configure(*config.Config, string) {}

func (s *nriConnector) Open(_ context.Context, r *Runtime) error {
	s.runtime = r
	return nil
}

func (s *nriConnector) Close() error {
	if s.runtime != nil {
		s.syncsBeforeClose = s.runtime.syncCount.count()
	}
	return nil
}

func (s *nriConnector) Act(ctx context.Context, step *scenario.Step) error {
	return actOn(ctx, s.runtime, step)
}

func (s *nriConnector) AwaitReconnect(ctx context.Context, patience time.Duration) error {
	return s.runtime.syncCount.await(ctx, s.syncsBeforeClose+1, patience)
}

// actOn performs a step's actions on pods and containers.
func actOn(ctx context.Context, r *Runtime, s *scenario.Step) error {
	for i := range s.Run {
		if err := runPod(ctx, r, &s.Run[i]); err != nil {
			return err
		}
	}
	switch {
	case s.Create != nil:
		return r.CreateContainer(ctx, s.Create.Pod, s.Create.Container)
	case s.Start != "":
		return r.StartContainer(ctx, s.Start)
	case s.Update != nil:
		return s.Update.WithPodWrites(r.SetPodCgroup, func() error { return r.UpdateContainer(ctx, s.Update.Container, s.Update.Resources) })
	}
	var errs []error
	for _, ref := range s.Stop {
		if ref.Container() == "" {
			errs = append(errs, r.StopPodSandbox(ctx, ref))
		} else {
			errs = append(errs, r.StopContainer(ctx, ref))
		}
	}
	for _, ref := range s.Remove {
		if ref.Container() == "" {
			errs = append(errs, r.RemovePodSandbox(ctx, ref))
		} else {
			errs = append(errs, r.RemoveContainer(ctx, ref))
		}
	}
	return errors.Join(errs...)
}

// runPod runs the sandbox of a pod, then creates and starts each container.
func runPod(ctx context.Context, r *Runtime, run *scenario.Run) error {
	resources := SumResources(run.Pod.QoS, run.Containers)
	if run.Pod.Resources != nil {
		resources = *run.Pod.Resources
	}
	if err := r.RunPodSandbox(ctx, run.Pod, resources); err != nil {
		return err
	}
	ref := scenario.PodRef(run.Pod.Namespace, run.Pod.Name)
	for _, c := range run.Containers {
		if err := r.CreateContainer(ctx, ref, c); err != nil {
			return err
		}
		if err := r.StartContainer(ctx, ref.In(c.Name)); err != nil {
			return err
		}
	}
	return nil
}
