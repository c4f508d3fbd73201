package cri

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// mostAsking is how many verbose statuses are asked for at once.
	mostAsking = 4
	// mostHung is how many questions may take all of their time in one
	// synchronisation; what is left is asked about afterwards.
	mostHung = 8
)

// away is the error of a runtime that is not there, or of a context that ended;
// nil for one that is about a single pod or container.
func away(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil && status.Code(err) != codes.Unavailable {
		return nil
	}
	return err
}

// isGone reports whether the runtime does not have what it was asked about.
func isGone(err error) bool { return status.Code(err) == codes.NotFound }

// patience counts questions that took all their time.
type patience struct {
	mu   sync.Mutex
	hung int
}

// over is an error where too many questions have taken all their time.
func (p *patience) over() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hung >= mostHung {
		return fmt.Errorf("not asked yet: %d others were not answered within %v", p.hung, describeTimeout)
	}
	return nil
}

func (p *patience) note(err error) {
	if status.Code(err) == codes.DeadlineExceeded {
		p.mu.Lock()
		p.hung++
		p.mu.Unlock()
	}
}

// describePod completes a pod of a list; nil where it is gone. One that the runtime
// cannot describe is as it is listed. The error is that of a runtime that is away.
func (s *lists) describePod(ctx context.Context, l *cri.PodSandbox, patient *patience) (*lifecycle.Pod, error) {
	err := patient.over()
	if err == nil {
		var p *lifecycle.Pod
		p, err = s.client.pod(ctx, l)
		patient.note(err)
		if err == nil || isGone(err) {
			return p, nil
		}
		if away(ctx, err) != nil {
			return nil, err
		}
	}
	p := podListed(l)
	p.Unread = err.Error()
	return p, nil
}

// describe is describePod of a container.
func (s *lists) describe(ctx context.Context, l listed, patient *patience) (*lifecycle.Container, error) {
	err := patient.over()
	if err == nil {
		var c *lifecycle.Container
		c, err = s.client.container(ctx, l.id, l.pod)
		patient.note(err)
		if away(ctx, err) != nil {
			return nil, err
		}
		if err == nil && c.State == lifecycle.StateUnknown {
			c.State, c.Unread = lifecycle.StateRunning, "the runtime says that its state is unknown"
		}
		if err == nil || isGone(err) {
			return c, nil
		}
	}
	return s.client.listedContainer(ctx, l, err), nil
}

// describeAll completes lists to an event: pods that are ready, and their containers
// that have not ended. Those that the runtime cannot describe are as they are listed:
// what they own stays theirs, and they are asked about again.
func (s *lists) describeAll(ctx context.Context, pods []*cri.PodSandbox, ctrs []listed) (lifecycle.Event, error) {
	var patient patience
	var mu sync.Mutex // guards ev
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mostAsking)
	isReady := map[string]bool{}
	for _, l := range pods {
		if l.State != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		isReady[l.Id] = true
		group.Go(func() error {
			p, err := s.describePod(ctx, l, &patient)
			if p == nil {
				return err
			}
			s.logRead(logkey.Pod, p.Namespace+"/"+p.Name, p.ID, p.Unread, false)
			mu.Lock()
			defer mu.Unlock()
			ev.Pods = append(ev.Pods, p)
			return nil
		})
	}
	for _, l := range ctrs {
		if !isReady[l.pod] || l.state == exited {
			continue
		}
		group.Go(func() error {
			c, err := s.describe(ctx, l, &patient)
			if c == nil {
				return err
			}
			s.logRead(logkey.Container, c.ID, c.ID, c.Unread, false)
			c.Compact()
			mu.Lock()
			defer mu.Unlock()
			ev.Containers = append(ev.Containers, c)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return lifecycle.Event{}, err
	}
	ev.Containers = unite(ev.Pods, ev.Containers)
	return ev, nil
}

// unite has the containers of unread pods unread, too: their pods' facts are theirs. In
// turn it finds where such a pod's cgroup is by those of its containers. Containers of
// pods that went meanwhile are left out.
func unite(pods []*lifecycle.Pod, ctrs []*lifecycle.Container) []*lifecycle.Container {
	byID := make(map[string]*lifecycle.Pod, len(pods))
	for _, p := range pods {
		byID[p.ID] = p
	}
	ctrs = slices.DeleteFunc(ctrs, func(c *lifecycle.Container) bool { return byID[c.PodID] == nil })
	for _, c := range ctrs {
		p := byID[c.PodID]
		if p.Unread == "" {
			continue
		}
		if c.Unread == "" {
			c.Unread = ofPod(p)
		}
		if c.CgroupsPath != "" {
			if slice, _, systemd := strings.Cut(c.CgroupsPath, ":"); systemd {
				p.CgroupParent = slice
			} else {
				p.CgroupParent = path.Dir(c.CgroupsPath)
			}
		}
	}
	return ctrs
}

// ofPod is why the container of a pod that cannot be read is not taken for read.
func ofPod(p *lifecycle.Pod) string { return "of its pod: " + p.Unread }

// retry asks about something again that could not be described, once its time has
// come.
func (s *lists) retry(id string, ask func(ctx context.Context) error) {
	if !s.retries.begin(id) {
		return
	}
	s.order.work.Go(func() {
		defer s.retries.end(id)
		recoverPanic(s.log, "asking again", func() { _ = ask(s.order.ctx) }) // that a runtime is away the comparison says
	})
}

// retryNow has the containers of a pod that can be read now asked about at once.
func (s *lists) retryNow(pod string) {
	if p := s.store.pod(pod); p != nil && p.Unread == "" {
		s.retries.drop(pod)
	}
	s.retries.drop(s.store.containersOf(pod)...)
}

// adoptPod takes in one pod, where it is still there; known is what was listed of one
// that could not be described. The error is that of a runtime that is away.
func (s *lists) adoptPod(ctx context.Context, id string, known *lifecycle.Pod) error {
	found, err := s.client.pods(ctx, id)
	if err != nil || len(found) != 1 {
		return away(ctx, err)
	}
	p, err := s.describePod(ctx, found[0], &patience{})
	if p == nil {
		return err
	}
	if s.logRead(logkey.Pod, p.Namespace+"/"+p.Name, id, p.Unread, known != nil) && s.store.pod(id) == known {
		s.store.notePod(p)
		s.retryNow(id)
		s.events.after(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	return nil
}

// adoptContainer takes in one container; known is what was listed of one that could
// not be described. The error is that of a runtime that is away.
func (s *lists) adoptContainer(ctx context.Context, l listed, p *lifecycle.Pod, known *lifecycle.Container) error {
	c, err := s.describe(ctx, l, &patience{})
	if c == nil {
		return err
	}
	if p.Unread != "" && c.Unread == "" {
		c.Unread = ofPod(p)
	}
	if s.logRead(logkey.Container, p.Namespace+"/"+p.Name+"/"+c.Name, l.id, c.Unread, known != nil) {
		s.order.after(p.ID, func(ctx context.Context) { s.takeIn(ctx, c, p, known) })
	}
	return nil
}

// takeIn notifies of a container of which no call came, or says more of one that could
// not be described, unless something else did meanwhile.
func (s *lists) takeIn(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, known *lifecycle.Container) {
	if now, _ := s.store.container(c.ID); now != known {
		return
	}
	kept, runs := lean(c), c.State == lifecycle.StateRunning
	if known == nil {
		s.store.noteContainer(kept, runs)
	} else {
		s.store.change(c.ID, func(k *ctr) { k.value, k.started = kept, k.started || runs })
	}
	if c.Unread == "" {
		s.retries.drop(c.ID)
	}
	if runs { // else its start notifies
		s.events.notify(ctx, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p, Container: c})
	}
}

// logRead says once that something cannot be read, and why, or that it can be again,
// and has what cannot be read asked about later. It reports whether that is new.
func (s *lists) logRead(what, name, id, unread string, before bool) (isNew bool) {
	if unread != "" {
		s.retries.later(id)
	}
	switch {
	case unread != "" && before:
		return false
	case unread != "":
		s.log.Warn("the runtime lists something that it cannot describe: it keeps what it has, and the runtime is asked again", what, name, logkey.Err, unread)
	case before:
		s.log.Info("the runtime describes what it could not before", what, name)
	}
	return true
}
