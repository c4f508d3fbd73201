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

// GrantsOptions are what Grants are made of.
type GrantsOptions struct {
	// Socket is that of the kubelet's PodResources API (v1); "" switches it off.
	Socket string
	// Wait is the longest a runtime is made to wait.
	Wait time.Duration
	// Changed is called with the UIDs of pods whose grants became known or changed,
	// not on the path of any request.
	Changed func(podUIDs []string)
	Log     *slog.Logger
	// Remembered is what Save was given last by an earlier agent: CPUs and memory
	// nodes that stand in for a kubelet that is away. Save is called off the path of
	// any request, and may be nil.
	Remembered []byte
	Save       func([]byte) error
	// Retry is the first pause after a question without success, 1 s where 0.
	Retry time.Duration
	// Dial connects to the socket; nil for the system's call.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
}

// Grants knows which devices the kubelet gave the pods it was asked about, and
// which CPUs and memory nodes its static managers. The kubelet allots all of them
// before it makes the sandbox. A pod's devices stay its own for as long as it
// lives; its CPUs may be others after a resize, so that each answer counts for
// all pods.
type Grants struct {
	o     GrantsOptions
	woken chan struct{}
	ready chan struct{}    // closed once the kubelet was asked
	turn  chan struct{}    // a lock: a goroutine that has put its token in may ask; guards conn
	conn  *grpc.ClientConn // nil before the first question

	mu        sync.Mutex // guards all below; never held across I/O
	known     map[string]*lifecycle.KubeletGrants
	before    map[string]*lifecycle.KubeletGrants // known to an earlier agent; used until the kubelet answers
	dirty     bool                                // what is known is other than what was saved
	wanted    map[string]podName                  // by UID
	changed   []string
	slowUntil time.Time
	asked     bool
	up        bool
	err       error
	noCPUs    error // why its answers do not report CPUs; nil where they do
}

// podName is what the PodResources API knows a pod by.
type podName struct{ namespace, name string }

// NewGrants returns one that knows nothing. Nothing is asked before Run or
// Await.
func NewGrants(o GrantsOptions) *Grants {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	before, err := recallGrants(o.Remembered)
	if err != nil {
		o.Log.Warn("the saved grants of the kubelet cannot be read and are ignored", logkey.Err, err)
	}
	return &Grants{
		before: before,
		o:      o, woken: make(chan struct{}, 1), ready: make(chan struct{}), turn: make(chan struct{}, 1),
		known: map[string]*lifecycle.KubeletGrants{}, wanted: map[string]podName{},
		err: errors.New("not asked yet"), noCPUs: errors.New("not asked yet"),
	}
}

// Granted returns what is known of a pod at once, nil for nothing. What is not
// known is asked for, off the caller's path.
func (g *Grants) Granted(pod *lifecycle.Pod) *lifecycle.KubeletGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.knownLocked(pod); known != nil {
		return known
	}
	if g.wantLocked(pod) {
		wake(g.woken)
	}
	return g.before[pod.UID]
}

// Known returns what is known of a pod at once, without a request.
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

// wantLocked notes that a pod is to be asked for; false where it was noted, or
// cannot be.
func (g *Grants) wantLocked(pod *lifecycle.Pod) bool {
	if _, noted := g.wanted[pod.UID]; noted || g.o.Socket == "" || pod.UID == "" || pod.Name == "" || len(g.wanted) == maxPods {
		return false
	}
	g.wanted[pod.UID] = podName{pod.Namespace, pod.Name}
	return true
}

// Invalidate says that what is known of a pod may be of before: it is asked for again,
// and stands until there is an answer.
func (g *Grants) Invalidate(pod *lifecycle.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wantLocked(pod) {
		wake(g.woken)
	}
}

// Await asks for pods that nothing is known of, or that are in doubt, for at most
// as long as the options say. Where the kubelet does not answer, or was slow just
// now, it returns at once.
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
		wake(g.woken)
		return
	}
	limited, cancel := context.WithTimeout(ctx, g.o.Wait)
	defer cancel()
	if err := g.ask(limited); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			g.mu.Lock()
			g.slowUntil = time.Now().Add(slow)
			g.mu.Unlock()
		}
		g.o.Log.Debug("what the kubelet granted is not known in time", logkey.Err, err)
	}
	wake(g.woken)
}

// ask waits for its turn, then asks for all pods that are wanted by then. Where none
// is, the answer to an earlier request had them.
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
	g.asked, g.up, g.err, g.noCPUs = true, err == nil, err, noCPUs
	if err != nil {
		if news {
			g.o.Log.Info("the kubelet does not report which devices it granted; none counts as granted", logkey.Err, err)
		}
		return err
	}
	if g.err = unreadNames(unread); g.err != nil && (before == nil || before.Error() != g.err.Error()) {
		g.o.Log.Warn("what the kubelet granted some pods cannot be read; what was known of them stays", logkey.Err, g.err)
	}
	g.takeLocked(wanted, answer, unread)
	return nil
}

// unreadNames says how many pods could not be read, and why the first; nil for none.
func unreadNames(unread map[podName]error) error {
	var all []Unread
	for _, err := range unread {
		all = append(all, Unread{Err: err})
	}
	slices.SortFunc(all, func(a, b Unread) int { return strings.Compare(a.Err.Error(), b.Err.Error()) })
	return unreadError(all)
}

// takeLocked takes in an answer to a question for the wanted pods. A pod it
// does not have is no longer the kubelet's. It reports no UIDs: of two pods that
// had a name in turn only the later counts, and of two that are wanted at once
// neither, until an answer is wanted for one of them alone. Of a pod that could not be
// read what was known stays, and it is asked about again; so do all it does not have,
// where one has no name.
func (g *Grants) takeLocked(wanted map[string]podName, answer map[podName]given, unread map[podName]error) {
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

// list asks the kubelet. The first error is why its answer has no CPUs, the second
// why there is no answer; unread are pods that cannot be read.
func (g *Grants) list(ctx context.Context) (all map[podName]given, unread map[podName]error, noCPUs, err error) {
	answer, noCPUs, err := g.fetch(ctx)
	if err == nil {
		all, unread, err = grantsOf(answer, noCPUs == nil)
	}
	if err != nil {
		err = g.because(err)
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
	noCPUs = g.tellsCPUs(ctx, client)
	answer, err = client.List(ctx, &podresources.ListPodResourcesRequest{})
	return answer, noCPUs, err
}

// tellsCPUs returns why a container of which the kubelet lists no CPUs may have
// some alone. A CPU manager that gives none away says that none can be had; a
// kubelet older than 1.23 is not asked, or lists none.
func (g *Grants) tellsCPUs(ctx context.Context, client podresources.PodResourcesListerClient) error {
	g.mu.Lock()
	knowsPolicy := g.up && g.noCPUs == nil
	g.mu.Unlock()
	if knowsPolicy { // the kubelet changes its policy only by a restart, and the agent notices that
		return nil
	}
	answer, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return g.because(err)
	}
	if len(answer.GetCpuIds()) == 0 {
		return fmt.Errorf("%s lists no CPUs that can be given away: the kubelet's CPU manager has the policy none, or does not tell", g.o.Socket)
	}
	return nil
}

func (g *Grants) because(err error) error {
	return because(err, g.o.Socket, "kubelets have it, and an agent in a container needs its directory mounted")
}

// Ready returns once the kubelet was asked. It waits a short time at most.
func (g *Grants) Ready(ctx context.Context) { awaitFirst(ctx, g.ready) }

// State reports whether the kubelet answers, and of how many pods grants are
// known.
func (g *Grants) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return State{Source: lifecycle.FromPodResources, Up: g.up, Pods: len(g.known), Err: g.err, NoCPUs: g.noCPUs}
}

// Run asks for pods that no request could wait for, and reports answers, until ctx
// ends.
func (g *Grants) Run(ctx context.Context) error {
	if g.o.Socket == "" {
		g.mu.Lock()
		g.err = errors.New("podspec.kubelet.podResourcesSocket is empty")
		g.noCPUs = g.err
		g.mu.Unlock()
		close(g.ready)
		<-ctx.Done()
		return nil
	}
	pause, resting := g.o.Retry, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	var retry statefile.Retry
	keep := time.NewTicker(keepEvery) // of a save that failed
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
		case <-g.woken:
		}
		if resting { // asked without success just now
			continue
		}
		limited, cancel := context.WithTimeout(ctx, fetchTimeout)
		err := g.ask(limited)
		cancel()
		g.tell()
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
	saveLast(g.save)
	return g.end()
}

// end closes the connection once no request is under way.
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

// tell hands over whose grants became known or changed.
func (g *Grants) tell() {
	g.mu.Lock()
	changed := g.changed
	g.changed = nil
	g.mu.Unlock()
	if g.o.Changed != nil && len(changed) > 0 {
		slices.Sort(changed)
		g.o.Changed(slices.Compact(changed))
	}
}
