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

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/statefile"
)

// GrantsOptions configure Grants.
type GrantsOptions struct {
	// Socket is the socket of the kubelet's PodResources API (v1). If it is empty, the API is not used.
	Socket string
	// Wait is how long a runtime's request waits for grants at most.
	Wait time.Duration
	// Changed is called with the UIDs of pods whose grants are new or changed. No request
	// waits for it.
	Changed func(podUIDs []string)
	Log     *slog.Logger
	// Saved is what an earlier agent last passed to Save: CPUs and memory nodes that are used while the kubelet
	// does not answer. No request waits for Save, which may be nil.
	Saved []byte
	Save  func([]byte) error
	// Retry is the first pause after a failed request; 0 means 1 s.
	Retry time.Duration
	// Dial connects to the socket; nil means the system's call.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
}

// Grants has the devices that the kubelet assigned to pods, and the CPUs and memory nodes that its static managers
// assigned. The kubelet assigns all of them before it creates the sandbox. The devices of a pod never change. Its
// CPUs may change at a resize, so each answer updates all pods.
type Grants struct {
	o     GrantsOptions
	wake  chan struct{}
	ready chan struct{}       // closed after the first attempt to ask the kubelet, or if the API is not used
	turn  *semaphore.Weighted // held while a goroutine calls the kubelet; guards conn
	conn  *grpc.ClientConn    // nil before the first request, and after a failed one

	mu        sync.Mutex // guards all below; never held across I/O
	known     map[string]*lifecycle.KubeletGrants
	saved     map[string]*lifecycle.KubeletGrants // grants that an earlier agent saved; used until the kubelet answers
	dirty     bool                                // known differs from what was saved last
	wanted    map[string]podName                  // names of the pods to ask about, by UID
	changed   []string
	slowUntil time.Time
	asked     bool
	up        bool
	err       error
	noCPUs    error // why the answers have no CPUs; nil if they have
}

// podName identifies a pod in the PodResources API.
type podName struct{ namespace, name string }

// NewGrants returns Grants without any pods. It sends no request before Run or Await.
func NewGrants(o GrantsOptions) *Grants {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	before, err := loadGrants(o.Saved)
	if err != nil {
		o.Log.Warn("the agent cannot read the saved grants of the kubelet and ignores them", logkey.Err, err)
	}
	return &Grants{
		saved: before,
		o:     o, wake: make(chan struct{}, 1), ready: make(chan struct{}), turn: semaphore.NewWeighted(1),
		known: map[string]*lifecycle.KubeletGrants{}, wanted: map[string]podName{},
		err: errors.New("not asked yet"), noCPUs: errors.New("not asked yet"),
	}
}

// Granted returns the known grants of a pod, without waiting; nil for none. If no answer of the kubelet had the pod, it
// schedules a request about the pod, and returns the grants that an earlier agent saved.
func (g *Grants) Granted(pod *lifecycle.Pod) *lifecycle.KubeletGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.knownLocked(pod); known != nil {
		return known
	}
	if g.wantLocked(pod) {
		sleep.Wake(g.wake)
	}
	return g.saved[pod.UID]
}

// Known returns the known grants of a pod, and schedules no request.
func (g *Grants) Known(podUID string) *lifecycle.KubeletGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.known[podUID]; known != nil {
		return known
	}
	return g.saved[podUID]
}

func (g *Grants) knownLocked(pod *lifecycle.Pod) *lifecycle.KubeletGrants {
	k := g.known[pod.UID]
	if k == nil || k.Namespace != pod.Namespace || k.Name != pod.Name {
		return nil
	}
	return k
}

// wantLocked schedules a request about a pod. It returns false if that is already scheduled, or is not possible.
func (g *Grants) wantLocked(pod *lifecycle.Pod) bool {
	if _, noted := g.wanted[pod.UID]; noted || g.o.Socket == "" || pod.UID == "" || pod.Name == "" || len(g.wanted) == maxPods {
		return false
	}
	g.wanted[pod.UID] = podName{pod.Namespace, pod.Name}
	return true
}

// Invalidate schedules a request about a pod, because its grants may have changed. The known grants stay in use
// until the answer.
func (g *Grants) Invalidate(pod *lifecycle.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wantLocked(pod) {
		sleep.Wake(g.wake)
	}
}

// Await asks the kubelet about pods that are unknown or were invalidated, for at most GrantsOptions.Wait. It
// returns at once if the last request failed and the kubelet's socket does not exist, or if the kubelet failed to
// answer in time during the last slowPause. If the last request failed and the socket exists, it asks again, because
// a kubelet creates its first pods as soon as it has started.
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
	failed, slow := !g.up && g.asked, time.Now().Before(g.slowUntil)
	g.mu.Unlock()
	if !wanted {
		return
	}
	if slow || g.o.Wait <= 0 || failed && !g.listening() {
		sleep.Wake(g.wake)
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
	sleep.Wake(g.wake)
}

// listening reports whether the kubelet's socket exists. A kubelet that has ended may have left the
// socket. A call on such a socket fails at once.
func (g *Grants) listening() bool {
	_, err := os.Stat(g.o.Socket)
	return err == nil
}

// ask waits until no other goroutine calls the kubelet, and then asks about all wanted pods. If no pod is wanted
// any more, the answer to another request had them.
func (g *Grants) ask(ctx context.Context) error {
	if err := g.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer g.turn.Release(1)
	g.mu.Lock()
	wanted, first, up := maps.Clone(g.wanted), !g.asked, g.up
	g.mu.Unlock()
	if len(wanted) == 0 && up {
		return nil
	}
	answer, unread, noCPUs, err := g.list(ctx)
	if err != nil && g.conn != nil { // a new connection does not wait for the back-off of the old one
		_ = g.conn.Close()
		g.conn = nil
	}
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
			g.o.Log.Info("the kubelet does not report the devices that it assigned; the agent assumes that it assigned none", logkey.Err, err)
		}
		return err
	}
	if g.err = unreadNames(unread); g.err != nil && (before == nil || before.Error() != g.err.Error()) {
		g.o.Log.Warn("the agent cannot read which devices, CPUs and memory nodes the kubelet assigned to some pods; it keeps what it knew about these pods", logkey.Err, g.err)
	}
	g.storeAnswerLocked(wanted, answer, unread)
	return nil
}

// unreadNames returns how many pods could not be read, and why the first could not, or nil if all could.
func unreadNames(unread map[podName]error) error {
	var all []UnreadPod
	for _, err := range unread {
		all = append(all, UnreadPod{Err: err})
	}
	slices.SortFunc(all, func(a, b UnreadPod) int { return strings.Compare(a.Err.Error(), b.Err.Error()) })
	return unreadError(all)
}

// storeAnswerLocked stores the answer to a request about the wanted pods. It drops pods that the answer lacks,
// because the kubelet no longer has them. The answer has no UIDs. If two pods had the same name one after the
// other, only the later one counts. If two pods with the same name are wanted at the same time, neither counts
// until only one of them is wanted. For a pod that could not be read, the known grants stay in use, and it is asked
// about again. If that pod has no name, this applies to all pods that the answer lacks.
func (g *Grants) storeAnswerLocked(wanted map[string]podName, answer map[podName]podGrants, unread map[podName]error) {
	_, nameless := unread[podName{}]
	isUnread := func(name podName) bool {
		_, listed := answer[name]
		return unread[name] != nil || nameless && !listed
	}
	maps.DeleteFunc(g.saved, func(_ string, k *lifecycle.KubeletGrants) bool { return !isUnread(podName{k.Namespace, k.Name}) })
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

// list asks the kubelet. err is why there is no answer. noCPUs is why the answer has no CPUs. unread are pods that
// cannot be read.
func (g *Grants) list(ctx context.Context) (all map[podName]podGrants, unread map[podName]error, noCPUs, err error) {
	answer, noCPUs, err := g.fetch(ctx)
	if err == nil {
		all, unread, err = parseGrants(answer, noCPUs == nil)
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

// whyNoCPUs returns why a container without CPUs in the answer may still have exclusive CPUs, or nil if it cannot.
// A CPU manager that assigns no CPUs reports no allocatable CPUs. A kubelet older than 1.23 does not have that
// call, or lists none.
func (g *Grants) whyNoCPUs(ctx context.Context, client podresources.PodResourcesListerClient) error {
	g.mu.Lock()
	knowsPolicy := g.up && g.noCPUs == nil
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

// AwaitFirst returns after the first attempt to ask the kubelet, at most after maxFirstWait.
func (g *Grants) AwaitFirst(ctx context.Context) { awaitFirst(ctx, g.ready) }

// State returns whether the kubelet answers, and for how many pods grants are known.
func (g *Grants) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return State{Source: lifecycle.FromPodResources, Up: g.up, Pods: len(g.known), Err: g.err, NoCPUs: g.noCPUs}
}

// Run requests the grants of pods that no caller waited for, and reports answers, until ctx ends.
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
	keep := time.NewTicker(savePause) // retries a failed save
	defer keep.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-keep.C:
			if retry.Failed() && !retry.TooEarly(time.Now()) {
				retry.SetResult(time.Now(), g.save())
			}
			continue
		case <-timer.C:
			resting = false
		case <-g.wake:
		}
		if resting { // the last request failed just now
			continue
		}
		limited, cancel := context.WithTimeout(ctx, fetchTimeout)
		err := g.ask(limited)
		cancel()
		g.notifyChanged()
		if !retry.TooEarly(time.Now()) {
			retry.SetResult(time.Now(), g.save())
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
	return g.end(ctx)
}

// end closes the connection when no call uses it any more.
func (g *Grants) end(ctx context.Context) error {
	_ = g.turn.Acquire(context.WithoutCancel(ctx), 1) // cannot fail, because this context never ends
	defer g.turn.Release(1)
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
