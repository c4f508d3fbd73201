package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// describeTimeout bounds the question about one pod or container: one that the
	// runtime hangs on must not keep all others waiting.
	describeTimeout = 2 * time.Second
	// mostHung is how many of them may take all of that in one synchronisation; the
	// rest is asked about afterwards.
	mostHung = 8
	// firstRetry and lastRetry bound the pause before the runtime is asked again about
	// what it could not describe.
	firstRetry, lastRetry = time.Second, 30 * time.Second
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

// podListed is a pod as a list tells it, where the runtime does not describe it.
func podListed(l *cri.PodSandbox, why error) *lifecycle.Pod {
	return &lifecycle.Pod{
		ID: l.Id, Name: l.GetMetadata().GetName(), UID: l.GetMetadata().GetUid(), Namespace: l.GetMetadata().GetNamespace(),
		Labels: l.Labels, Annotations: l.Annotations, RuntimeHandler: l.RuntimeHandler, Unread: why.Error(),
	}
}

// listedContainer is a container as a list tells it. What a runtime cannot tell the
// state of is taken for running: nothing of its is given away.
func (b *backend) listedContainer(ctx context.Context, l listed, why error) (*lifecycle.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	c := &lifecycle.Container{
		ID: l.id, PodID: l.pod, Name: lifecycle.Unnamed, State: stateIn(cri.ContainerState(l.state)), Unread: why.Error(),
	}
	if c.State == lifecycle.StateUnknown {
		c.State = lifecycle.StateRunning
	}
	found, err := b.calls.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: l.id}})
	if err != nil {
		return c, nil
	}
	at := slices.IndexFunc(found.Containers, func(c *cri.Container) bool { return c.Id == l.id })
	if at < 0 {
		return nil, nil //nolint:nilnil // it is gone
	}
	full := found.Containers[at]
	c.Name, c.Labels, c.Annotations, c.CreatedAt = full.GetMetadata().GetName(), full.Labels, full.Annotations, full.CreatedAt
	return c, nil
}

// describe asks about one container that is listed; nil where it is gone. What the
// runtime cannot describe is as it is listed. took is handed what came of the
// question. The error is that of a runtime that is away.
func (a *Attachment) describe(ctx context.Context, l listed, took func(error)) (*lifecycle.Container, error) {
	c, err := a.backend.container(ctx, l.id, l.pod)
	took(err)
	switch {
	case away(ctx, err) != nil:
		return nil, err
	case err != nil && isGone(err):
		return nil, nil //nolint:nilnil // it is gone
	case err == nil && c.State == lifecycle.StateUnknown:
		c.State, c.Unread = lifecycle.StateRunning, "the runtime says that its state is unknown"
	case err != nil:
		if c, err = a.backend.listedContainer(ctx, l, err); err != nil || c == nil {
			return nil, err
		}
	}
	return c, nil
}

// inquiry completes lists to an event.
type inquiry struct {
	*Attachment

	mu   sync.Mutex // guards all below
	pods map[string]*lifecycle.Pod
	ev   lifecycle.Event
	hung int
}

// ask completes lists to an event: pods that are ready, and their containers
// that have not ended. Those that the runtime cannot describe are told of as they are
// listed: what they own stays theirs, and they are asked about again.
func (a *Attachment) ask(ctx context.Context, pods []*cri.PodSandbox, ctrs []listed) (lifecycle.Event, error) {
	q := &inquiry{Attachment: a, pods: map[string]*lifecycle.Pod{}, ev: lifecycle.Event{Kind: lifecycle.Synchronize}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asking)
	isReady := map[string]bool{}
	for _, l := range pods {
		if l.State == cri.PodSandboxState_SANDBOX_READY {
			isReady[l.Id] = true
			group.Go(func() error { return q.pod(ctx, l) })
		}
	}
	for _, l := range ctrs {
		if isReady[l.pod] && l.state != exited {
			group.Go(func() error { return q.container(ctx, l) })
		}
	}
	if err := group.Wait(); err != nil {
		return lifecycle.Event{}, err
	}
	q.unite()
	return q.ev, nil
}

// patient is an error where too many questions have taken all their time.
func (q *inquiry) patient() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hung >= mostHung {
		return fmt.Errorf("not asked yet: %d others were not answered within %v", q.hung, describeTimeout)
	}
	return nil
}

func (q *inquiry) note(err error) {
	if status.Code(err) == codes.DeadlineExceeded {
		q.mu.Lock()
		q.hung++
		q.mu.Unlock()
	}
}

func (q *inquiry) pod(ctx context.Context, l *cri.PodSandbox) error {
	err := q.patient()
	var p *lifecycle.Pod
	if err == nil {
		p, err = q.backend.pod(ctx, l)
		q.note(err)
	}
	switch {
	case err == nil:
	case isGone(err):
		return nil
	case away(ctx, err) != nil:
		return err
	default:
		p = podListed(l, err)
		q.tellUnread(logkey.Pod, p.Namespace+"/"+p.Name, err)
		q.retryLater(p.ID)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ev.Pods = append(q.ev.Pods, p)
	q.pods[p.ID] = p
	return nil
}

func (q *inquiry) container(ctx context.Context, l listed) error {
	var c *lifecycle.Container
	err := q.patient()
	if err == nil {
		c, err = q.describe(ctx, l, q.note)
	} else {
		c, err = q.backend.listedContainer(ctx, l, err)
	}
	if err != nil || c == nil {
		return err
	}
	if c.Unread != "" {
		q.retryLater(c.ID)
		q.tellUnread(logkey.Container, c.ID, errors.New(c.Unread))
	}
	c.Compact()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ev.Containers = append(q.ev.Containers, c)
	return nil
}

// unite has the containers of unread pods unread, too: their pods' facts are theirs. In
// turn it finds where such a pod's cgroup is by those of its containers. Containers of
// pods that went meanwhile are left out.
func (q *inquiry) unite() {
	q.ev.Containers = slices.DeleteFunc(q.ev.Containers, func(c *lifecycle.Container) bool { return q.pods[c.PodID] == nil })
	for _, c := range q.ev.Containers {
		p := q.pods[c.PodID]
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
}

// ofPod is why the container of a pod that cannot be read is not taken for read.
func ofPod(p *lifecycle.Pod) string { return "of its pod: " + p.Unread }

// again is when something the runtime could not describe is asked about next.
type again struct {
	at    time.Time
	pause time.Duration
	busy  bool // it is being asked about
}

// retry asks about something again that could not be described, once its time has
// come.
func (a *Attachment) retry(id string, ask func(ctx context.Context) error) {
	a.mu.Lock()
	r := a.retries[id]
	begins := !r.busy && !time.Now().Before(r.at)
	if begins {
		r.busy = true
		a.retries[id] = r
	}
	a.mu.Unlock()
	if !begins {
		return
	}
	a.work.Go(func() {
		a.contain("asking again", func() { _ = ask(a.ctx) }) // of a runtime that is away the comparison tells
		a.mu.Lock()
		defer a.mu.Unlock()
		if r, waits := a.retries[id]; waits {
			r.busy = false
			a.retries[id] = r
		}
	})
}

// retryLater has a pod or container asked about again after a while, which doubles
// each time.
func (a *Attachment) retryLater(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.retries[id]
	r.pause = min(max(2*r.pause, firstRetry), lastRetry)
	r.at = time.Now().Add(r.pause)
	a.retries[id] = r
}

// forgetRetries forgets when those that are listed no more were to be asked about.
func (a *Attachment) forgetRetries(pods, ctrs []listed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.retries) == 0 {
		return
	}
	there := map[string]bool{}
	for _, l := range slices.Concat(pods, ctrs) {
		there[l.id] = true
	}
	maps.DeleteFunc(a.retries, func(id string, _ again) bool { return !there[id] })
}

// retrySoon has the containers of a pod that can be read now asked about at once.
func (a *Attachment) retrySoon(pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.store.pods[pod]; p != nil && p.told.Unread == "" {
		delete(a.retries, pod)
	}
	for id, c := range a.store.ctrs {
		if c.pod == pod {
			delete(a.retries, id)
		}
	}
}

// adoptPod takes in one pod, where it is still there; known is what was listed of one
// that could not be described. The error is that of a runtime that is away.
func (a *Attachment) adoptPod(ctx context.Context, id string, known *lifecycle.Pod) error {
	found, err := a.backend.pods(ctx, id)
	if err != nil || len(found) != 1 {
		return away(ctx, err)
	}
	p, err := a.backend.pod(ctx, found[0])
	switch {
	case err != nil && (away(ctx, err) != nil || isGone(err)):
		return away(ctx, err)
	case err != nil && known != nil:
		a.retryLater(id)
		return nil
	case err != nil:
		p = podListed(found[0], err)
		a.tellUnread(logkey.Pod, p.Namespace+"/"+p.Name, err)
		a.retryLater(id)
	case known != nil:
		a.tellRead(logkey.Pod, p.Namespace+"/"+p.Name)
	}
	if a.pod(id) == known {
		a.notePod(p)
		a.retrySoon(id)
		a.after(id, func(ctx context.Context) { a.tell(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p}) })
	}
	return nil
}

// adoptContainer takes in one container; known is what was listed of one that could
// not be described. The error is that of a runtime that is away.
func (a *Attachment) adoptContainer(ctx context.Context, l listed, p *lifecycle.Pod, known *lifecycle.Container) error {
	c, err := a.describe(ctx, l, func(error) {})
	if err != nil || c == nil {
		return err
	}
	if p.Unread != "" && c.Unread == "" {
		c.Unread = ofPod(p)
	}
	switch {
	case c.Unread != "" && known != nil:
		a.retryLater(l.id)
		return nil
	case c.Unread != "":
		a.tellUnread(logkey.Container, p.Namespace+"/"+p.Name+"/"+c.Name, errors.New(c.Unread))
		a.retryLater(l.id)
	case known != nil:
		a.tellRead(logkey.Container, p.Namespace+"/"+p.Name+"/"+c.Name)
	}
	a.after(p.ID, func(ctx context.Context) { a.takeIn(ctx, c, p, known) })
	return nil
}

// takeIn tells of a container that nobody told of, or more of one that could not be
// described, unless something else did meanwhile.
func (a *Attachment) takeIn(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, known *lifecycle.Container) {
	if now, _ := a.container(c.ID); now != known {
		return
	}
	kept := *c
	kept.Args, kept.Mounts, kept.Devices = nil, nil, nil // nobody asks for them again
	if known == nil {
		a.noteContainer(&kept, c.State == lifecycle.StateRunning)
	} else {
		a.change(c.ID, func(k *ctr) { k.told, k.started = &kept, k.started || c.State == lifecycle.StateRunning })
	}
	if c.Unread == "" {
		a.mu.Lock()
		delete(a.retries, c.ID)
		a.mu.Unlock()
	}
	if c.State == lifecycle.StateRunning { // else its start tells
		a.tell(ctx, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p, Container: c})
	}
}

// tellUnread says once that something cannot be read.
func (a *Attachment) tellUnread(what, name string, err error) {
	a.o.Log.Warn("the runtime lists something that it cannot describe: it keeps what it has, and the runtime is asked again", what, name, logkey.Err, err)
}

func (a *Attachment) tellRead(what, name string) {
	a.o.Log.Info("the runtime describes what it could not before", what, name)
}
