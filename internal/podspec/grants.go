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
	// Wait is the longest time for which a runtime's request waits for grants.
	Wait time.Duration
	// Changed is called with the UIDs of pods whose grants are new or have changed. No request of the runtime waits for
	// Changed.
	Changed func(podUIDs []string)
	Log     *slog.Logger
	// Saved is what an earlier agent last passed to Save: the CPUs and memory nodes of pods. The agent uses Saved while
	// the kubelet does not answer. No request of the runtime waits for Save. If Save is nil, the agent saves nothing.
	Saved []byte
	Save  func([]byte) error
	// Retry is the first pause after a failed request. The pause doubles with each failure. 0 means 1 s.
	Retry time.Duration
	// Dial connects to the socket. If Dial is nil, gRPC makes the connection itself.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
}

// Grants has the devices that the kubelet has assigned to pods, and the CPUs and memory nodes that the static managers
// of the kubelet have assigned. The kubelet assigns all of these before it creates the sandbox of the pod. The devices
// of a pod never change. The CPUs of a pod may change at a resize, so each answer of the kubelet updates all pods.
type Grants struct {
	o       GrantsOptions
	wake    chan struct{}       // wakes Run
	ready   chan struct{}       // closed after the first attempt to ask the kubelet, or if the API is not used
	callSem *semaphore.Weighted // held while a goroutine calls the kubelet; guards conn
	conn    *grpc.ClientConn    // nil before the first request, and after a failed request

	mu          sync.Mutex                          // guards the fields below; never held across I/O
	knownGrants map[string]*lifecycle.KubeletGrants // by pod UID: the grants in the kubelet's answers
	savedGrants map[string]*lifecycle.KubeletGrants // by pod UID: the grants that an earlier agent saved
	dirty       bool                                // knownGrants differs from what was saved last
	podsToAsk   map[string]podName                  // names of the pods to ask the kubelet about, by UID
	changedUIDs []string                            // the pods of the next call of GrantsOptions.Changed
	slowUntil   time.Time                           // until then, Await does not wait for the kubelet
	askedOnce   bool                                // the first request has ended
	up          bool                                // the kubelet answered the last request
	err         error                               // why the last request failed, or which pods are unreadable
	noCPUs      error                               // why the answers have no CPUs; nil if the answers have CPUs
}

// podName identifies a pod in the PodResources API.
type podName struct{ namespace, name string }

// NewGrants returns Grants that know only the saved grants. They send no request before Run or Await is called.
func NewGrants(o GrantsOptions) *Grants {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	before, err := loadGrants(o.Saved)
	if err != nil {
		o.Log.Warn("the agent ignores unreadable saved data about the CPUs and memory nodes that the kubelet assigned", logkey.Err, err)
	}
	return &Grants{
		savedGrants: before,
		o:           o, wake: make(chan struct{}, 1), ready: make(chan struct{}), callSem: semaphore.NewWeighted(1),
		knownGrants: map[string]*lifecycle.KubeletGrants{}, podsToAsk: map[string]podName{},
		err: errors.New("the agent has sent no request to the kubelet yet"), noCPUs: errors.New("the agent has sent no request to the kubelet yet"),
	}
}

// Granted returns the known grants of a pod, without waiting. If no answer of the kubelet has had the pod, Granted
// schedules a request about the pod. It then returns the grants that an earlier agent has saved, or nil if there are
// none.
func (g *Grants) Granted(pod *lifecycle.Pod) *lifecycle.KubeletGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.knownLocked(pod); known != nil {
		return known
	}
	if g.scheduleLocked(pod) {
		sleep.Wake(g.wake)
	}
	return g.savedGrants[pod.UID]
}

// Known returns the known grants of a pod. If there are none, it returns the grants that an earlier agent has saved, or
// nil. It schedules no request.
func (g *Grants) Known(podUID string) *lifecycle.KubeletGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.knownGrants[podUID]; known != nil {
		return known
	}
	return g.savedGrants[podUID]
}

// knownLocked returns the grants that the kubelet has reported for a pod. It returns nil if the pod had another name in
// that report.
func (g *Grants) knownLocked(pod *lifecycle.Pod) *lifecycle.KubeletGrants {
	k := g.knownGrants[pod.UID]
	if k == nil || k.Namespace != pod.Namespace || k.Name != pod.Name {
		return nil
	}
	return k
}

// scheduleLocked schedules a request about a pod. It returns false if such a request is already scheduled, or cannot be
// sent.
func (g *Grants) scheduleLocked(pod *lifecycle.Pod) bool {
	if _, noted := g.podsToAsk[pod.UID]; noted || g.o.Socket == "" || pod.UID == "" || pod.Name == "" || len(g.podsToAsk) == maxPods {
		return false
	}
	g.podsToAsk[pod.UID] = podName{pod.Namespace, pod.Name}
	return true
}

// Invalidate schedules a request about a pod, because the pod's grants may have changed. The known grants stay in use
// until the kubelet answers.
func (g *Grants) Invalidate(pod *lifecycle.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.scheduleLocked(pod) {
		sleep.Wake(g.wake)
	}
}

// Await requests the grants of the pods, if the grants of one of them are unknown or were invalidated. It waits at most
// for GrantsOptions.Wait. It returns at once if the kubelet did not answer in time less than slowPause ago, or if the
// last request failed and the kubelet's socket does not exist. If the last request failed but the socket exists, Await
// sends another request, because a kubelet creates its first pods as soon as it has started.
func (g *Grants) Await(ctx context.Context, pods ...*lifecycle.Pod) {
	g.mu.Lock()
	wanted := false
	for _, pod := range pods {
		if g.knownLocked(pod) == nil {
			g.scheduleLocked(pod)
		}
		_, noted := g.podsToAsk[pod.UID]
		wanted = wanted || noted
	}
	failed, slow := !g.up && g.askedOnce, time.Now().Before(g.slowUntil)
	g.mu.Unlock()
	if !wanted {
		return
	}
	if slow || g.o.Wait <= 0 || failed && !g.socketExists() {
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
		g.o.Log.Debug("the kubelet did not report in time which devices and CPUs it assigned", logkey.Err, err)
	}
	sleep.Wake(g.wake)
}

// socketExists reports whether the kubelet's socket exists. A kubelet that has ended may have left the socket. A call to
// such a socket fails at once.
func (g *Grants) socketExists() bool {
	_, err := os.Stat(g.o.Socket)
	return err == nil
}

// ask waits until no other goroutine calls the kubelet, and then requests the grants of all pods in podsToAsk. If
// podsToAsk is empty by then, and the last request succeeded, ask sends no request.
func (g *Grants) ask(ctx context.Context) error {
	if err := g.callSem.Acquire(ctx, 1); err != nil {
		return err
	}
	defer g.callSem.Release(1)
	g.mu.Lock()
	wanted, first, up := maps.Clone(g.podsToAsk), !g.askedOnce, g.up
	g.mu.Unlock()
	if len(wanted) == 0 && up {
		return nil
	}
	answer, unread, noCPUs, err := g.list(ctx)
	if err != nil && g.conn != nil { // the next request makes a new connection, which does not wait for the back-off of this one
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
	g.askedOnce, g.up, g.err, g.noCPUs = true, err == nil, err, noCPUs
	if err != nil {
		if news {
			g.o.Log.Info("the kubelet does not report the devices that it assigned; the agent assumes that the kubelet assigned none", logkey.Err, err)
		}
		return err
	}
	if g.err = unreadNamesError(unread); g.err != nil && (before == nil || before.Error() != g.err.Error()) {
		g.o.Log.Warn("the agent cannot read which devices, CPUs and memory nodes the kubelet assigned to some pods; for these pods it uses the data that it read before", logkey.Err, g.err)
	}
	g.storeAnswerLocked(wanted, answer, unread)
	return nil
}

// unreadNamesError returns an error with the number of pods that cannot be read, and the reason for the first of them.
// It returns nil if all pods can be read.
func unreadNamesError(unread map[podName]error) error {
	var all []UnreadPod
	for _, err := range unread {
		all = append(all, UnreadPod{Err: err})
	}
	slices.SortFunc(all, func(a, b UnreadPod) int { return strings.Compare(a.Err.Error(), b.Err.Error()) })
	return unreadError(all)
}

// storeAnswerLocked stores the answer to a request about the pods in wanted. It drops pods that the answer lacks,
// because the kubelet no longer has them.
//
// The answer has names, but no UIDs. If two pods had the same name one after the other, the grants are those of the
// later pod. If wanted has two pods with the same name, neither of them gets grants until a later request is about
// only one of them.
//
// For a pod that cannot be read, the known grants stay in use, and the agent requests the pod again. If an unreadable
// pod has no name, this applies to all pods that the answer lacks.
func (g *Grants) storeAnswerLocked(wanted map[string]podName, answer map[podName]podGrants, unread map[podName]error) {
	_, nameless := unread[podName{}]
	isUnread := func(name podName) bool {
		_, listed := answer[name]
		return unread[name] != nil || nameless && !listed
	}
	maps.DeleteFunc(g.savedGrants, func(_ string, k *lifecycle.KubeletGrants) bool { return !isUnread(podName{k.Namespace, k.Name}) })
	wanted = maps.Clone(wanted)
	maps.DeleteFunc(wanted, func(_ string, name podName) bool { return isUnread(name) })
	claims := map[podName]int{}
	for uid, name := range wanted {
		claims[name]++
		delete(g.podsToAsk, uid)
	}
	for uid, k := range g.knownGrants {
		name := podName{k.Namespace, k.Name}
		now, lives := answer[name]
		switch {
		case isUnread(name):
		case !lives || claims[name] > 0:
			delete(g.knownGrants, uid)
			g.dirty = true
		case !reflect.DeepEqual(k.Static, now.static):
			moved := *k
			moved.Static = now.static
			g.knownGrants[uid], g.dirty = &moved, true
			g.changedUIDs = append(g.changedUIDs, uid)
		}
	}
	for uid, name := range wanted {
		now, listed := answer[name]
		if !listed || claims[name] > 1 {
			continue
		}
		g.knownGrants[uid] = &lifecycle.KubeletGrants{UID: uid, Namespace: name.namespace, Name: name.name, Containers: now.devices, Static: now.static}
		g.changedUIDs, g.dirty = append(g.changedUIDs, uid), true
	}
}

// list requests the grants of all pods from the kubelet. err is why there is no answer. noCPUs is why the answer has no
// CPUs. unread has the pods that cannot be read, with the reason.
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

// fetch requests from the kubelet the allocatable CPUs, and what the kubelet has assigned to all pods (answer). It
// connects to the kubelet if there is no connection. If the answer does not reliably have the exclusive CPUs of
// containers, noCPUs is the reason.
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

// whyNoCPUs returns nil if a container without CPUs in the kubelet's answer certainly has no exclusive CPUs. Otherwise
// it returns the reason why the agent cannot know this. It requests the allocatable CPUs, because a CPU manager that
// assigns no CPUs reports no allocatable CPUs. A kubelet before 1.23 does not have this call, or lists no CPUs.
func (g *Grants) whyNoCPUs(ctx context.Context, client podresources.PodResourcesListerClient) error {
	g.mu.Lock()
	knowsPolicy := g.up && g.noCPUs == nil
	g.mu.Unlock()
	if knowsPolicy { // a policy changes only when the kubelet restarts, and then a request fails and sets g.up to false
		return nil
	}
	answer, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return g.explain(err)
	}
	if len(answer.GetCpuIds()) == 0 {
		return fmt.Errorf("%s lists no allocatable CPUs: the kubelet's CPU manager has the policy none, or this version of the kubelet does not report CPUs", g.o.Socket)
	}
	return nil
}

// explain adds to an error of the connection the path of the socket, and what the operator can do.
func (g *Grants) explain(err error) error {
	return connectionError(err, g.o.Socket, "every kubelet has this socket; if the agent runs in a container, mount the socket's directory")
}

// AwaitFirst returns after the first request to the kubelet has ended, or after maxFirstWait.
func (g *Grants) AwaitFirst(ctx context.Context) { awaitFirst(ctx, g.ready) }

// State returns whether the kubelet answers, and for how many pods grants are known.
func (g *Grants) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return State{Source: lifecycle.FromPodResources, Up: g.up, Pods: len(g.knownGrants), Err: g.err, NoCPUs: g.noCPUs}
}

// Run requests the grants of the pods in podsToAsk, also if no caller of Await waits for them. It reports and saves
// changes, until ctx ends.
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
		if resting { // the pause after a failed request is not over
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
	return g.closeConn(ctx)
}

// closeConn waits until no call uses the connection, and closes it.
func (g *Grants) closeConn(ctx context.Context) error {
	_ = g.callSem.Acquire(context.WithoutCancel(ctx), 1) // cannot fail, because this context never ends
	defer g.callSem.Release(1)
	if g.conn == nil {
		return nil
	}
	conn := g.conn
	g.conn = nil
	return conn.Close()
}

// notifyChanged calls Changed with the pods whose grants are new or have changed.
func (g *Grants) notifyChanged() {
	g.mu.Lock()
	changed := g.changedUIDs
	g.changedUIDs = nil
	g.mu.Unlock()
	if g.o.Changed != nil && len(changed) > 0 {
		slices.Sort(changed)
		g.o.Changed(slices.Compact(changed))
	}
}
