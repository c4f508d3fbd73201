package podspec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// GrantsOptions configure Grants.
type GrantsOptions struct {
	// Socket is the socket of the kubelet's PodResources API (v1); "" switches it off.
	Socket string
	// Wait is the longest that a runtime's request waits.
	Wait time.Duration
	// Changed is called with the UIDs of pods whose grants are new or changed. No request
	// waits for it.
	Changed func(podUIDs []string)
	Log     *slog.Logger
	// Remembered is what an earlier agent passed to Save last: CPUs and memory nodes that
	// are used while the kubelet does not answer. No request waits for Save, which may be
	// nil.
	Remembered []byte
	Save       func([]byte) error
	// Retry is the first pause after a failed question; 0 means 1 s.
	Retry time.Duration
	// Dial connects to the socket; nil for the system's call.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
}

// Grants has the devices that the kubelet assigned to pods, and the CPUs and memory
// nodes that its static managers assigned. The kubelet assigns all of them before it
// creates the sandbox. A pod's devices never change. Its CPUs may change at a resize,
// so each answer updates all pods.
type Grants struct {
	o     GrantsOptions
	wake  chan struct{}
	ready chan struct{}    // closed when the kubelet was asked once
	turn  chan struct{}    // a lock: the goroutine whose token it holds may ask; guards conn
	conn  *grpc.ClientConn // nil before the first question

	mu                sync.Mutex // guards all below; never held across I/O
	known             map[string]*lifecycle.KubeletGrants
	before            map[string]*lifecycle.KubeletGrants // of an earlier agent; used until the kubelet answers
	dirty             bool                                // known differs from what was saved
	wanted            map[string]podName                  // by UID
	changed           []string
	slowUntil         time.Time
	asked             bool
	up                bool
	err               error
	cpusMissingReason error // why its answers have no CPUs; nil if they have
}

// podName identifies a pod in the PodResources API.
type podName struct{ namespace, name string }

// NewGrants returns Grants without any pods. It asks nothing before Run or Await.
func NewGrants(o GrantsOptions) *Grants {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	before, err := loadGrants(o.Remembered)
	if err != nil {
		o.Log.Warn("the agent cannot read the saved grants of the kubelet and ignores them", logkey.Err, err)
	}
	return &Grants{
		before: before,
		o:      o, wake: make(chan struct{}, 1), ready: make(chan struct{}), turn: make(chan struct{}, 1),
		known: map[string]*lifecycle.KubeletGrants{}, wanted: map[string]podName{},
		err: errors.New("not asked yet"), cpusMissingReason: errors.New("not asked yet"),
	}
}

// Granted returns the known grants of a pod, without waiting; nil for none. It
// schedules a question about an unknown pod.
func (g *Grants) Granted(pod *lifecycle.Pod) *lifecycle.KubeletGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.knownLocked(pod); known != nil {
		return known
	}
	if g.wantLocked(pod) {
		signal(g.wake)
	}
	return g.before[pod.UID]
}

// Known returns the known grants of a pod, and schedules no question.
func (g *Grants) Known(podUID string) *lifecycle.KubeletGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.known[podUID]; known != nil {
		return known
	}
	return g.before[podUID]
}

func (g *Grants) knownLocked(pod *lifecycle.Pod) *lifecycle.KubeletGrants {
	k := g.known[pod.UID]
	if k == nil || k.Namespace != pod.Namespace || k.Name != pod.Name {
		return nil
	}
	return k
}

// wantLocked schedules a question about a pod; false if that is scheduled already, or
// impossible.
func (g *Grants) wantLocked(pod *lifecycle.Pod) bool {
	if _, noted := g.wanted[pod.UID]; noted || g.o.Socket == "" || pod.UID == "" || pod.Name == "" || len(g.wanted) == maxPods {
		return false
	}
	g.wanted[pod.UID] = podName{pod.Namespace, pod.Name}
	return true
}

// Invalidate schedules a question about a pod, because its grants may have changed. The
// known ones stay until the answer.
func (g *Grants) Invalidate(pod *lifecycle.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wantLocked(pod) {
		signal(g.wake)
	}
}

// Await asks for pods that are unknown or were invalidated, for at most
// GrantsOptions.Wait. If the kubelet does not answer, or was slow just now, it returns
// at once.
func (g *Grants) Await(ctx context.Context, pods ...*lifecycle.Pod) {
	g.mu.Lock()
	wanted := false
	for _, pod := range pods {
		if g.knownLocked(pod) == nil {
			g.wantLocked(pod)
		}
		_, noted := g.wanted[pod.UID]
		wanted = wanted || noted
	}
	late := !g.up && g.asked || time.Now().Before(g.slowUntil)
	g.mu.Unlock()
	if !wanted {
		return
	}
	if late || g.o.Wait <= 0 {
		signal(g.wake)
		return
	}
	limited, cancel := context.WithTimeout(ctx, g.o.Wait)
	defer cancel()
	if err := g.ask(limited); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			g.mu.Lock()
			g.slowUntil = time.Now().Add(slowPause)
			g.mu.Unlock()
		}
		g.o.Log.Debug("the kubelet did not report its grants in time", logkey.Err, err)
	}
	signal(g.wake)
}

// ask waits for its turn, then asks for all wanted pods. If none is wanted any more,
// the answer to another question had them.
func (g *Grants) ask(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	wanted, first, up := maps.Clone(g.wanted), !g.asked, g.up
	g.mu.Unlock()
	if len(wanted) == 0 && up {
		return nil
	}
	answer, unread, noCPUs, err := g.list(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if first {
		close(g.ready)
	}
	news := first || g.up != (err == nil)
	before := g.err
	g.asked, g.up, g.err, g.cpusMissingReason = true, err == nil, err, noCPUs
	if err != nil {
		if news {
			g.o.Log.Info("the kubelet does not report the devices that it assigned; the agent assumes that it assigned none", logkey.Err, err)
		}
		return err
	}
	if g.err = unreadNames(unread); g.err != nil && (before == nil || before.Error() != g.err.Error()) {
		g.o.Log.Warn("the agent cannot read the kubelet's grants of some pods; it keeps their known grants", logkey.Err, g.err)
	}
	g.takeLocked(wanted, answer, unread)
	return nil
}

// unreadNames returns how many pods could not be read, and why the first could not; nil
// for none.
func unreadNames(unread map[podName]error) error {
	var all []Unread
	for _, err := range unread {
		all = append(all, Unread{Err: err})
	}
	slices.SortFunc(all, func(a, b Unread) int { return strings.Compare(a.Err.Error(), b.Err.Error()) })
	return unreadError(all)
}

// takeLocked stores the answer to a question for the wanted pods. A pod that is not in
// it is no longer the kubelet's. The answer has no UIDs. So of two pods that had the
// same name one after the other only the later counts. Of two that are wanted at the
// same time neither counts, until an answer is wanted for one of them only. For a pod
// that could not be read, the known grants stay, and it is asked about again. If that
// pod has no name, this applies to all pods that the answer lacks.
func (g *Grants) takeLocked(wanted map[string]podName, answer map[podName]podGrants, unread map[podName]error) {
	_, nameless := unread[podName{}]
	isUnread := func(name podName) bool {
		_, listed := answer[name]
		return unread[name] != nil || nameless && !listed
	}
	maps.DeleteFunc(g.before, func(_ string, k *lifecycle.KubeletGrants) bool { return !isUnread(podName{k.Namespace, k.Name}) })
	wanted = maps.Clone(wanted)
	maps.DeleteFunc(wanted, func(_ string, name podName) bool { return isUnread(name) })
	claims := map[podName]int{}
	for uid, name := range wanted {
		claims[name]++
		delete(g.wanted, uid)
	}
	for uid, k := range g.known {
		name := podName{k.Namespace, k.Name}
		now, lives := answer[name]
		switch {
		case isUnread(name):
		case !lives || claims[name] > 0:
			delete(g.known, uid)
			g.dirty = true
		case !reflect.DeepEqual(k.Static, now.static):
			moved := *k
			moved.Static = now.static
			g.known[uid], g.dirty = &moved, true
			g.changed = append(g.changed, uid)
		}
	}
	for uid, name := range wanted {
		now, listed := answer[name]
		if !listed || claims[name] > 1 {
			continue
		}
		g.known[uid] = &lifecycle.KubeletGrants{UID: uid, Namespace: name.namespace, Name: name.name, Containers: now.devices, Static: now.static}
		g.changed, g.dirty = append(g.changed, uid), true
	}
}

// list asks the kubelet. noCPUs is why its answer has no CPUs, err why there is no
// answer; unread are pods that cannot be read.
func (g *Grants) list(ctx context.Context) (all map[podName]podGrants, unread map[podName]error, noCPUs, err error) {
	answer, noCPUs, err := g.fetch(ctx)
	if err == nil {
		all, unread, err = grantsOf(answer, noCPUs == nil)
	}
	if err != nil {
		err = g.explain(err)
		return nil, nil, err, err
	}
	return all, unread, noCPUs, nil
}

func (g *Grants) fetch(ctx context.Context) (answer *podresources.ListPodResourcesResponse, noCPUs, err error) {
	if _, err := os.Stat(g.o.Socket); err != nil {
		return nil, nil, err
	}
	if g.conn == nil {
		if g.conn, err = connect(g.o.Socket, g.o.Dial); err != nil {
			return nil, nil, err
		}
	}
	client := podresources.NewPodResourcesListerClient(g.conn)
	noCPUs = g.whyNoCPUs(ctx, client)
	answer, err = client.List(ctx, &podresources.ListPodResourcesRequest{})
	return answer, noCPUs, err
}

// whyNoCPUs returns why a container without CPUs in the answer may still have exclusive
// ones; nil if it cannot. A CPU manager that assigns no CPUs reports no allocatable
// ones. A kubelet older than 1.23 does not have that call, or lists none.
func (g *Grants) whyNoCPUs(ctx context.Context, client podresources.PodResourcesListerClient) error {
	g.mu.Lock()
	knowsPolicy := g.up && g.cpusMissingReason == nil
	g.mu.Unlock()
	if knowsPolicy { // the kubelet changes its policy only at a restart, which the agent notices
		return nil
	}
	answer, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return g.explain(err)
	}
	if len(answer.GetCpuIds()) == 0 {
		return fmt.Errorf("%s lists no allocatable CPUs: the kubelet's CPU manager has the policy none, or does not report them", g.o.Socket)
	}
	return nil
}

func (g *Grants) explain(err error) error {
	return connectionError(err, g.o.Socket, "every kubelet has this socket; if the agent runs in a container, mount the socket's directory")
}

// AwaitFirst returns when the kubelet was asked once, at most after maxFirstWait.
func (g *Grants) AwaitFirst(ctx context.Context) { awaitFirst(ctx, g.ready) }

// State returns whether the kubelet answers, and for how many pods grants are known.
func (g *Grants) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return State{Source: lifecycle.FromPodResources, Up: g.up, Pods: len(g.known), Err: g.err, NoCPUs: g.cpusMissingReason}
}

// Run asks for pods that no request waited for, and reports answers, until ctx ends.
func (g *Grants) Run(ctx context.Context) error {
	if g.o.Socket == "" {
		g.mu.Lock()
		g.err = errors.New("podspec.kubelet.podResourcesSocket is empty")
		g.cpusMissingReason = g.err
		g.mu.Unlock()
		close(g.ready)
		<-ctx.Done()
		return nil
	}
	pause, resting := g.o.Retry, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	var retry statefile.Retry
	keep := time.NewTicker(savePause) // retries a failed save
	defer keep.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-keep.C:
			if retry.Failed() && !retry.Resting(time.Now()) {
				retry.Note(time.Now(), g.save())
			}
			continue
		case <-timer.C:
			resting = false
		case <-g.wake:
		}
		if resting { // the last question failed just now
			continue
		}
		limited, cancel := context.WithTimeout(ctx, fetchTimeout)
		err := g.ask(limited)
		cancel()
		g.notifyChanged()
		if !retry.Resting(time.Now()) {
			retry.Note(time.Now(), g.save())
		}
		g.mu.Lock()
		unread := g.err != nil
		g.mu.Unlock()
		if err == nil && !unread {
			pause = g.o.Retry
			continue
		}
		timer.Reset(pause)
		pause, resting = min(2*pause, maxRetry), true
	}
	saveAtEnd(g.save)
	return g.end()
}

// end closes the connection when no request runs any more.
func (g *Grants) end() error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.conn == nil {
		return nil
	}
	conn := g.conn
	g.conn = nil
	return conn.Close()
}

// notifyChanged reports the pods whose grants are new or changed.
func (g *Grants) notifyChanged() {
	g.mu.Lock()
	changed := g.changed
	g.changed = nil
	g.mu.Unlock()
	if g.o.Changed != nil && len(changed) > 0 {
		slices.Sort(changed)
		g.o.Changed(slices.Compact(changed))
	}
}
