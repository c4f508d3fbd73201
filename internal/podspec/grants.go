package podspec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// GrantsOptions are what Grants are made of.
type GrantsOptions struct {
	// Socket is that of the kubelet's PodResources API (v1); "" asks nobody.
	Socket string
	// Wait is the longest a runtime is made to wait.
	Wait time.Duration
	// Changed is told the UIDs of pods whose grants became known, not on the
	// path of any request.
	Changed func(podUIDs []string)
	Log     *slog.Logger
	// Retry is the first pause after a question in vain, 1 s where 0.
	Retry time.Duration
}

// Grants knows which devices the kubelet gave the pods it was asked about. The
// kubelet allots a pod's devices once, before it makes the sandbox: what was
// told of a pod stays true for as long as it lives.
type Grants struct {
	o     GrantsOptions
	woken chan struct{}
	ready chan struct{}    // closed once the kubelet was asked
	turn  chan struct{}    // whoever fills it may ask, and guards conn
	conn  *grpc.ClientConn // nil before the first question

	mu        sync.Mutex // guards all below; never held across I/O
	known     map[string]*lifecycle.DeviceGrants
	wanted    map[string]podName // by UID
	changed   []string
	slowUntil time.Time
	asked     bool
	up        bool
	err       error
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
	return &Grants{
		o: o, woken: make(chan struct{}, 1), ready: make(chan struct{}), turn: make(chan struct{}, 1),
		known: map[string]*lifecycle.DeviceGrants{}, wanted: map[string]podName{}, err: errors.New("not asked yet"),
	}
}

// Granted returns what is known of a pod at once, nil for nothing. What is not
// known is asked for, off the caller's path.
func (g *Grants) Granted(pod *lifecycle.Pod) *lifecycle.DeviceGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.knownLocked(pod); known != nil {
		return known
	}
	if g.wantLocked(pod) {
		g.wake()
	}
	return nil
}

// Known returns what is known of a pod at once, and asks nobody.
func (g *Grants) Known(podUID string) *lifecycle.DeviceGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[podUID]
}

func (g *Grants) knownLocked(pod *lifecycle.Pod) *lifecycle.DeviceGrants {
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

func (g *Grants) wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// Await asks for a pod that nothing is known of, for at most as long as the
// options say. Where the kubelet does not answer, or was slow just now, it
// returns at once.
func (g *Grants) Await(ctx context.Context, pod *lifecycle.Pod) {
	g.mu.Lock()
	known := g.knownLocked(pod) != nil
	if !known {
		g.wantLocked(pod)
	}
	_, wanted := g.wanted[pod.UID]
	late := !g.up && g.asked || time.Now().Before(g.slowUntil)
	g.mu.Unlock()
	if known || !wanted {
		return
	}
	if late || g.o.Wait <= 0 {
		g.wake()
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
		g.o.Log.Debug("granted devices are not known in time", logkey.Pod, pod.Name, logkey.Namespace, pod.Namespace, logkey.Err, err)
	}
	g.wake()
}

// ask asks for all pods that are wanted when it has the turn. Where none is,
// somebody else's answer had them.
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
	answer, err := g.list(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if first {
		close(g.ready)
	}
	news := first || g.up != (err == nil)
	g.asked, g.up, g.err = true, err == nil, err
	if err != nil {
		if news {
			g.o.Log.Info("nobody tells which devices Kubernetes granted; none counts as granted", logkey.Err, err)
		}
		return err
	}
	g.takeLocked(wanted, answer)
	return nil
}

// takeLocked takes in an answer to a question for the wanted pods. A pod it
// does not have is no longer the kubelet's. It tells no UIDs: of two pods that
// had a name in turn only the later counts, and of two that are wanted at once
// neither, until an answer is wanted for one of them alone.
func (g *Grants) takeLocked(wanted map[string]podName, answer map[podName]map[string]lifecycle.DeviceGrant) {
	claims := map[podName]int{}
	for uid, name := range wanted {
		claims[name]++
		delete(g.wanted, uid)
	}
	for uid, k := range g.known {
		name := podName{k.Namespace, k.Name}
		if _, lives := answer[name]; !lives || claims[name] > 0 {
			delete(g.known, uid)
		}
	}
	for uid, name := range wanted {
		containers, told := answer[name]
		if !told || claims[name] > 1 {
			continue
		}
		g.known[uid] = &lifecycle.DeviceGrants{UID: uid, Namespace: name.namespace, Name: name.name, Containers: containers}
		g.changed = append(g.changed, uid)
	}
}

// list asks the kubelet.
func (g *Grants) list(ctx context.Context) (map[podName]map[string]lifecycle.DeviceGrant, error) {
	if _, err := os.Stat(g.o.Socket); err != nil {
		return nil, g.because(err)
	}
	if g.conn == nil {
		conn, err := grpc.NewClient("unix://"+g.o.Socket,
			grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket's permissions are what counts
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial(), MinConnectTimeout: 2 * time.Second}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
		if err != nil {
			return nil, g.because(err)
		}
		g.conn = conn
	}
	answer, err := podresources.NewPodResourcesListerClient(g.conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, g.because(err)
	}
	all, err := grantsOf(answer)
	if err != nil {
		return nil, g.because(err)
	}
	return all, nil
}

// because says what an error of the connection means.
func (g *Grants) because(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there: kubelets have it, and an agent in a container needs its directory mounted", g.o.Socket)
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", g.o.Socket, s.Message())
	}
	return fmt.Errorf("%s: %w", g.o.Socket, err)
}

// Ready returns once the kubelet was asked. It waits a short time at most.
func (g *Grants) Ready(ctx context.Context) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-g.ready:
	}
}

// State tells whether the kubelet answers, and of how many pods grants are
// known.
func (g *Grants) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return State{Source: lifecycle.FromPodResources, Up: g.up, Pods: len(g.known), Err: g.err}
}

// Run asks for pods nobody could wait for, and tells of answers, until ctx
// ends.
func (g *Grants) Run(ctx context.Context) error {
	if g.o.Socket == "" {
		g.mu.Lock()
		g.err = errors.New("podspec.kubelet.podResourcesSocket is empty")
		g.mu.Unlock()
		close(g.ready)
		<-ctx.Done()
		return nil
	}
	pause, resting := g.o.Retry, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-timer.C:
			resting = false
		case <-g.woken:
		}
		if resting { // asked in vain just now
			continue
		}
		limited, cancel := context.WithTimeout(ctx, fetchTimeout)
		err := g.ask(limited)
		cancel()
		g.tell()
		if err == nil {
			pause = g.o.Retry
			continue
		}
		timer.Reset(pause)
		pause, resting = min(2*pause, maxRetry), true
	}
	return g.end()
}

// end closes the connection once nobody asks.
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

// tell hands over whose grants became known.
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
