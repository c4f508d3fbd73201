package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent is a source whose state the test sets.
type agent struct {
	mu    sync.Mutex
	node  api.Node
	more  chan struct{}
	asked int // how often the status was requested
}

func (a *agent) Status() api.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	return a.node
}

func (a *agent) Explain(namespace, pod, _ string) ([]api.Container, bool) {
	var found []api.Container
	for _, c := range a.Status().Containers {
		if c.Pod == namespace+"/"+pod {
			found = append(found, c)
		}
	}
	return found, len(found) > 0
}

func (a *agent) Events(context.Context, uint64) ([]api.Event, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.more == nil {
		a.more = make(chan struct{})
	}
	return nil, a.more
}

// change changes the node and adds an event.
func (a *agent) change(change func(*api.Node)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.node)
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
}

func (a *agent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func small() api.Node {
	return api.Node{
		Version: "v0.1.0", Attachments: []api.Attachment{{Name: "nri", State: "connected", Runtime: "containerd 2.3"}},
		CPUs: api.NodeCPUs{
			Online: "0-7", Reserved: "0", Exclusive: "2-3", Shared: "1,4-7", Reclaimed: "4-7",
			Nodes: []api.NUMA{
				{ID: 0, CPUs: "0-3", Cores: []string{"0-1", "2-3"}, Memory: 4 << 30},
				{ID: 1, CPUs: "4-7", Package: 1, Cores: []string{"4", "5", "6", "7"}, Caches: []string{"4-5", "6-7"}}, {ID: 2, Package: -1, Memory: 64 << 30},
			},
			Grants: []api.Grant{{Pod: "shop/db", Container: "main", CPUs: "2-3"}},
			Pools:  []api.Pool{{Name: "shared", Class: "shared", CPUs: "1,4-7", Members: 1}},
		},
		Containers: []api.Container{
			{Pod: "shop/db", Name: "main", ID: "c1", State: "running", Class: "dedicated", QoS: "Guaranteed", CPUGroup: "exclusive", CPUs: "2-3", CPUGroupWhy: "chosen: the only core that holds all"},
			{Pod: "shop/web", Name: "main", ID: "c2", State: "running", Class: "shared", QoS: "Burstable", CPUGroup: "shared", CPUs: "1,4-7", Values: []api.Value{{Field: "cpuset.cpus", Value: "1,4-7", Applied: true}}},
		},
	}
}

func get(p *Page, method, url string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func TestAnswers(t *testing.T) {
	p := New(Options{Source: &agent{node: small()}, Node: "worker-7"})
	for _, tc := range []struct {
		name, method, url string
		headers           []string
		code              int
		part              string
	}{
		{"the page", "GET", "http://127.0.0.1:9464/page/", nil, 200, "<title>Trimtab</title>"},
		{"by IPv6", "GET", "http://[::1]:9464/page/", nil, 200, "<title>"},
		{"by localhost", "GET", "http://localhost/page/", nil, 200, "<title>"},
		{"by the node's name", "GET", "http://Worker-7:9464/page/", nil, 200, "<title>"},
		{"by a name of somebody else", "GET", "http://evil.example:9464/page/", nil, 421, "does not serve this host name"},
		{"by a name that looks like an address", "GET", "http://127.0.0.1.evil.example/page/events", nil, 421, "does not serve this host name"},
		{"a script", "GET", "http://localhost/page/app.js", nil, 200, "EventSource"},
		{"the styles", "HEAD", "http://localhost/page/style.css", nil, 200, ""},
		{"no way up", "GET", "http://localhost/page/../page.go", nil, 404, "not found"},
		{"nothing else", "GET", "http://localhost/page/files/app.js", nil, 404, "not found"},
		{"read only", "POST", "http://localhost/page/explain", nil, 405, "the page is read-only"},
		{"no questions by other sites", "GET", "http://localhost/page/events", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, 403, "another site"},
		{"a link of another site", "GET", "http://localhost/page/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200, "<title>"},
		{"the map without scripts", "GET", "http://localhost/page/node.svg", nil, 200, "shop/db alone: 2-3"},
		{"an unknown CPU", "GET", "http://localhost/page/explain?what=cpu&which=64", nil, 404, "does not have this object"},
		{"no number", "GET", "http://localhost/page/explain?what=cpu&which=x", nil, 404, "does not have this object"},
		{"an unknown container", "GET", "http://localhost/page/explain?what=container&which=a/b/c/d", nil, 404, "does not have this object"},
		{"a long question", "GET", "http://localhost/page/explain?what=pod&which=" + strings.Repeat("a", 2000), nil, 404, "does not have this object"},
		{"a container", "GET", "http://localhost/page/explain?what=container&which=shop/web/main/c2", nil, 200, "All values that the agent decided for the container are in force."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := get(p, tc.method, tc.url, tc.headers...)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.part) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, tc.code, tc.part)
			}
			for _, key := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options"} {
				if w.Header().Get(key) == "" {
					t.Errorf("no %s", key)
				}
			}
			if w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Error("other sites may read it")
			}
		})
	}
}

// TestPolicyFitsFiles: the page has nothing that its own content security policy forbids, and nothing from
// other hosts.
func TestPolicyFitsFiles(t *testing.T) {
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(path)
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", " style=", " onclick", "https://", "<script>", "<style"} {
			if strings.Contains(string(data), bad) {
				t.Errorf("%s has %s", path, bad)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestExplanations(t *testing.T) {
	for _, tc := range []struct {
		what, which, title, verdict string
		good                        bool
		about                       []string
		rows                        int
	}{
		{"cpu", "2", "CPU 2", "shop/db owns CPU 2: no other container may run on it.", true, []string{"It is in NUMA node 0 of socket 0.", "CPU 3 (shop/db) is a thread of the same core."}, 1},
		{"cpu", "0", "CPU 0", "It is reserved for the system (pools.reserved): no pod owns it.", true, []string{"It is in NUMA node 0 of socket 0.", "CPU 1 (shared pool) is a thread of the same core."}, 0},
		{"cpu", "6", "CPU 6", "Containers of the shared and reclaimed pool share it.", true, []string{"It is in NUMA node 1 of socket 1.", "It shares an L3 cache with CPUs 6-7."}, 1},
		{"numa", "0", "NUMA node 0", "Pods own 2 of its 4 CPUs.", true, []string{"It has CPUs 0-3 (2 cores, 1 L3 cache) in socket 0.", "Memory: 4.0 GiB."}, 3},
		{"numa", "2", "NUMA node 2", "It has only memory (64.0 GiB) and no CPUs.", true, nil, -1},
		{"pool", "shared", "Pool shared", "1 container may use 5 CPUs: 1,4-7.", true, []string{"CPUs that a pod owns are in no pool; a CPU may be in several pools.", "Its containers are of class shared."}, 1},
		{"pod", "shop/db", "Pod shop/db", "It owns CPUs 2-3; no other container may run on them.", true, nil, 1},
		{"pod", "shop/web", "Pod shop/web", "It owns no CPUs; its containers share the CPUs of pools.", true, nil, 1},
	} {
		e, known := explain(question{tc.what, tc.which}, small())
		if !known || e.Title != tc.title || e.Verdict.Text != tc.verdict || e.Verdict.Good != tc.good {
			t.Errorf("%s %s: %v %+v", tc.what, tc.which, known, e)
		}
		if d := cmp.Diff(tc.about, e.Remarks); d != "" {
			t.Errorf("%s %s:\n%s", tc.what, tc.which, d)
		}
		rows := -1
		if len(e.Tables) > 0 {
			rows = len(e.Tables[0].Rows)
		}
		if rows != tc.rows {
			t.Errorf("%s %s: %d rows, want %d: %v", tc.what, tc.which, rows, tc.rows, e.Tables)
		}
	}
}

// TestContainerCPUClasses: a container's page lists the classes of its CPUs, and which the kernel does not hold.
func TestContainerCPUClasses(t *testing.T) {
	e := explanationOf(api.Container{Pod: "shop/db", Name: "main", CPUs: "1-4", CPUClasses: []api.ContainerCPUClass{
		{CPUs: "1", Class: "fast", BalloonType: "latency", InForce: true, Kernel: "scaling_governor performance"},
		{CPUs: "2", Class: "slow", Reason: "no policy"}, {CPUs: "3-4"},
	}})
	want := [][]string{
		{"yes", "1", "fast", "latency", "scaling_governor performance"},
		{"NO: no policy", "2", "slow", "none: no balloon has these CPUs", ""},
		{"-", "3-4", "none", "-", "the kernel's own values"},
	}
	if len(e.Tables) != 1 {
		t.Fatalf("%+v", e.Tables)
	}
	if d := cmp.Diff(want, e.Tables[0].Rows); d != "" {
		t.Error(d)
	}
}

// TestKeptMarks: an owner keeps its letter whatever its name is, and owners for which no letter is left get two.
func TestKeptMarks(t *testing.T) {
	c := api.NodeCPUs{Online: "0-39"}
	for i := range 28 {
		g := api.Grant{Pod: fmt.Sprintf("shop/p%02d", i), CPUs: strconv.Itoa(i)}
		if i == 27 {
			g.Mark = "A"
		}
		c.Grants = append(c.Grants, g)
	}
	marks := map[string]bool{}
	long := 0
	all := filter(users(c), func(u cpuUser) bool { return u.Pod != "" })
	for _, u := range all {
		marks[u.Mark] = true
		long += len(u.Mark) - 1
	}
	if last := all[len(all)-1]; last.Mark != "A" || len(marks) != 28 || long != 2 || marks["*"] {
		t.Errorf("the last owner has mark %q, of %d marks %d have two letters: %v", last.Mark, len(marks), long, marks)
	}
}

func TestVerdicts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*api.Node)
		want   []string
	}{
		"all is well":    {func(*api.Node) {}, nil},
		"no runtime":     {func(n *api.Node) { n.Attachments[0].State = "waiting for socket" }, []string{"No runtime is attached"}},
		"standby":        {func(n *api.Node) { n.Standby, n.Attachments = "another agent runs", nil }, []string{"another agent runs"}},
		"released":       {func(n *api.Node) { n.Released = true }, []string{"restored"}},
		"configuration":  {func(n *api.Node) { n.ConfigError = "line 1\nline 2" }, []string{"line 1; line 2"}},
		"without cgroup": {func(n *api.Node) { n.WithoutCgroup = []string{"a/b/c"} }, []string{"a/b/c runs"}},
		"left":           {func(n *api.Node) { n.Contested = []api.Contested{{GaveUpReason: "x writes cpu.max"}} }, []string{"x writes cpu.max"}},
		"a value":        {func(n *api.Node) { n.Unapplied = 1 }, []string{"1 value is not in force"}},
		"waits for start": {func(n *api.Node) {
			n.Unapplied = 1
			n.Containers[1].State = "created"
			n.Containers[1].Values[0].Applied = false
		}, nil},
		"a problem": {func(n *api.Node) {
			n.Problems = 1
			n.Containers[0].Problems = []lifecycle.Problem{{Reason: "too much"}}
		}, []string{"shop/db/main: too much"}},
		"two problems of a container": {func(n *api.Node) {
			n.Problems = 2
			n.Containers[0].Problems = []lifecycle.Problem{{Reason: "too much"}, {Reason: "too late"}}
		}, []string{"shop/db/main: too much", "2 problems are reported in total"}},
		"a hook": {func(n *api.Node) {
			n.Hooks = []api.Hook{{Name: "rdt", Enabled: true, Finding: lifecycle.Finding{Support: lifecycle.NotSupported, Why: "no resctrl"}}}
		}, []string{"Hook rdt: not effective: no resctrl"}},
		"a hook's server": {func(n *api.Node) {
			n.HookServers = &api.HookServers{Servers: []api.HookServer{{File: "a.yaml", Error: "gone"}}}
		}, []string{"a.yaml: not in force: gone"}},
		"several, in turn": {func(n *api.Node) { n.Released, n.ConfigError = true, "bad" }, []string{"bad", "restored"}},
	} {
		n := small()
		tc.change(&n)
		v := nodeVerdict(n)
		if v.Good != (len(tc.want) == 0) || len(v.Reasons) != len(tc.want) {
			t.Errorf("%s: %+v", name, v)
			continue
		}
		for i, part := range tc.want {
			if !strings.Contains(v.Reasons[i], part) {
				t.Errorf("%s: %q has no %q", name, v.Reasons[i], part)
			}
		}
	}
}

// TestManyOwners: owners beyond the alphabet have their own marks, and the first ones have the marks of all
// drawings.
func TestManyOwners(t *testing.T) {
	n := api.NodeCPUs{Online: "0-99"}
	for i := range 100 {
		n.Grants = append(n.Grants, api.Grant{Pod: fmt.Sprintf("ns/p%03d", i), CPUs: fmt.Sprint(i)})
	}
	seen := map[string]bool{}
	for i, u := range users(n) {
		if seen[u.Mark] || u.CPUs != fmt.Sprint(i) {
			t.Errorf("%+v is listed twice, or misplaced", u)
		}
		seen[u.Mark] = true
	}
	if !seen["A"] || !seen["Z"] || !seen["Aa"] || !seen["Cv"] || len(seen) != 100 {
		t.Error(seen)
	}
}

// watcher reads a stream of a real server.
type watcher struct {
	lines *bufio.Scanner
	body  io.Closer
}

func watch(t *testing.T, url string) *watcher {
	t.Helper()
	r, err := http.Get(url + "/page/events")
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != http.StatusOK {
		_ = r.Body.Close()
		t.Fatal(r.Status)
	}
	s := bufio.NewScanner(r.Body)
	s.Buffer(nil, 16<<20)
	return &watcher{s, r.Body}
}

// next returns the next message of a kind, or of any kind.
func (w *watcher) next(t *testing.T, kind string) (name, data string) {
	t.Helper()
	for w.lines.Scan() {
		if event, is := strings.CutPrefix(w.lines.Text(), "event: "); is {
			name = event
		}
		if text, is := strings.CutPrefix(w.lines.Text(), "data: "); is && (kind == "" || kind == name) {
			return name, text
		}
	}
	t.Fatalf("the stream ended: %v", w.lines.Err())
	return "", ""
}

func server(t *testing.T, p *Page) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(p)
	s.Config.ReadTimeout, s.Config.WriteTimeout = time.Second, time.Second // shorter than the tests take
	s.Start()
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

// TestStream: a stream begins with the complete state, then sends changes, and outlives the server's time
// limits.
func TestStream(t *testing.T) {
	a := &agent{node: small()}
	stat := fstest.MapFS{"stat": {Data: []byte("cpu0 1 0 0 1\n")}}
	s := server(t, New(Options{Source: a, Node: "worker-7", Proc: stat}))
	w := watch(t, s.URL)
	defer w.body.Close()
	name, data := w.next(t, "")
	var first state
	if err := json.Unmarshal([]byte(data), &first); name != "state" || err != nil || first.Node != "worker-7" || len(first.Rows) != 2 || !first.Verdict.Good {
		t.Fatalf("%s %s", name, data)
	}
	if name, _ := w.next(t, ""); name != "use" {
		t.Errorf("%s, want use", name)
	}
	a.change(func(n *api.Node) {
		n.CPUs.Grants = append(n.CPUs.Grants[:1:1], api.Grant{Pod: "shop/new", CPUs: "4"})
		n.Containers = append(n.Containers[1:2:2], api.Container{Pod: "shop/new", Name: "main", ID: "c3", State: "running"})
	})
	var c change
	if _, data := w.next(t, "change"); json.Unmarshal([]byte(data), &c) != nil || c.Map == nil || c.Map.Nodes != nil || len(c.Rows) != 1 || c.Rows[0].Pod != "shop/new" ||
		!cmp.Equal(c.RemovedRows, []string{"shop/db/main/c1"}) {
		t.Errorf("%s", data)
	}
	before := a.count()
	w.next(t, "use")
	w.next(t, "use")
	if a.count() != before {
		t.Error("the agent was asked though nothing happened")
	}
}

// TestNobodyIsThere: without a stream no state is kept and nothing runs.
func TestNobodyIsThere(t *testing.T) {
	a := &agent{node: small()}
	p := New(Options{Source: a})
	s := server(t, p)
	w := watch(t, s.URL)
	w.next(t, "state")
	_ = w.body.Close()
	for end := time.Now().Add(time.Minute); ; {
		p.feed.mu.Lock()
		left, seq := p.feed.streams, p.feed.seq
		p.feed.mu.Unlock()
		if left == 0 && seq == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d streams, state %d", left, seq)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestTooMany: the ninth stream is refused with a message.
func TestTooMany(t *testing.T) {
	s := server(t, New(Options{Source: &agent{node: small()}}))
	for range maxStreams {
		w := watch(t, s.URL)
		defer w.body.Close()
		w.next(t, "state")
	}
	r, err := http.Get(s.URL + "/page/events")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "too many pages") {
		t.Errorf("%s %s", r.Status, text)
	}
}

// TestSlowReader: a client that does not read is disconnected, and delays no other.
func TestSlowReader(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the page is patient")
	}
	a := &agent{node: small()}
	for i := range 60_000 { // more than the sockets' buffers hold
		a.node.Containers = append(a.node.Containers, api.Container{Pod: fmt.Sprintf("ns/pod-%d", i), Name: "main", State: "running"})
	}
	p := New(Options{Source: a})
	s := server(t, p)
	slow, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "GET /page/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	w := watch(t, s.URL)
	defer w.body.Close()
	w.next(t, "state")
	for end := time.Now().Add(4 * clientTimeout); ; {
		w.next(t, "use")
		p.feed.mu.Lock()
		left := p.feed.streams
		p.feed.mu.Unlock()
		if left == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d streams: the slow one is still there", left)
		}
	}
}

// TestHostile: texts of pods cannot become markup, a message of the stream, or invisible characters.
func TestHostile(t *testing.T) {
	n := small()
	const bad = "<script>alert(1)</script>\n\ndata: x\u202e\x1b[31m\u2028"
	n.Containers[0].Pod, n.Containers[0].Name, n.CPUs.Grants[0].Pod = "shop/"+bad, bad, "shop/"+bad
	n.Containers[0].Problems = []lifecycle.Problem{{Key: bad, Value: bad, Reason: bad}}
	n.Containers[0].CPUGroupWhy, n.ConfigError, n.Problems = bad, bad, 1
	n.CPUs.Pools[0].Name = bad
	st := stateOf(bad, n)
	for i := range st.Rows {
		st.Rows[i].ID = "" // a query, which is never shown
	}
	explained := []explanation{explanationOf(n.Containers[0])}
	for _, q := range []question{{"cpu", "2"}, {"numa", "0"}, {"pod", "shop/<script>alert(1)</script>??data: x??[31m?"}} {
		e, known := explain(q, n)
		if !known {
			t.Errorf("%v is not known", q)
		}
		for i := range e.Tables {
			e.Tables[i].Goto = nil // also a query
		}
		explained = append(explained, e)
	}
	for _, text := range append([]string{string(encode(st))}, string(encode(explained))) {
		if strings.ContainsAny(text, "<>\n\u202e\u2028") || strings.Contains(text, `\n`) || strings.Contains(text, `\u001b`) || strings.Contains(text, `\u2028`) {
			t.Errorf("markup, a line or a letter that hides in %s", text)
		}
	}
}
