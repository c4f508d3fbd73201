package page

import (
	"bytes"
	"context"
	"embed"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/trimtab/trimtab/internal/report/cpumap"
)

// Path is the page's URL path.
const Path = "/page/"

// files are the files that a browser loads, embedded in this program.
//
//go:embed files
var files embed.FS

const (
	// clientTimeout is how long a client may take to read one message. The page drops a slower client.
	clientTimeout = 5 * time.Second
	// maxParallelQuestions is how many questions the page answers at the same time.
	maxParallelQuestions = 4
	// maxQuestionLength limits the bytes of the name in a question. The longest name has namespace, pod, container and
	// id.
	maxQuestionLength = 1024
)

// contentPolicy is the Content-Security-Policy of the page. It allows a browser only the page's own files and server.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Options configure the page.
type Options struct {
	Source Source
	// Node is the node's name.
	Node string
	// Proc is the node's /proc. It is nil if no /proc shows how busy the node's CPUs are.
	Proc fs.FS
}

// Page serves one node's page.
type Page struct {
	o             Options
	feed          feed
	questionSlots *semaphore.Weighted // limits the questions that are answered at the same time
	host          string              // the host name of this machine, in lower case
}

// New makes a page. Nothing runs until a browser connects.
func New(o Options) *Page {
	host, _ := os.Hostname()
	return &Page{
		o: o, feed: feed{src: o.Source, name: o.Node, proc: o.Proc, now: time.Now}, questionSlots: semaphore.NewWeighted(maxParallelQuestions),
		host: strings.ToLower(host),
	}
}

// ServeHTTP answers requests for the URL paths below Path.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if !p.servesHost(r.Host) {
		http.Error(w, "the node does not serve this host name: use its IP address, localhost, or its host name", http.StatusMisdirectedRequest)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read-only: use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		http.Error(w, "a web page of another site may not request the node's page", http.StatusForbidden)
		return
	}
	switch name := strings.TrimPrefix(r.URL.Path, Path); name {
	case "":
		http.ServeFileFS(w, r, files, "files/index.html")
	case "app.js", "draw.js", "style.css":
		http.ServeFileFS(w, r, files, "files/"+name)
	case "events":
		p.stream(w, r)
	case "explain":
		p.explain(w, r)
	case "node.svg":
		p.serveSVG(w, r)
	default:
		http.NotFound(w, r)
	}
}

// setHeaders sets the headers that every answer has. They forbid other sites to read, embed or frame an answer.
func setHeaders(h http.Header) {
	for key, value := range map[string]string{
		"Content-Security-Policy": contentPolicy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		h.Set(key, value)
	}
}

// servesHost reports whether host, the Host header of a request, is an IP address, localhost or a name of this node. It
// protects from DNS rebinding: another site makes its own name resolve to the node's address, and a browser then treats
// the node as a part of this site. The Host header of such a request has the name of the other site.
func (p *Page) servesHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || host != "" && (host == p.host || host == strings.ToLower(p.o.Node))
}

// explain answers a request such as ?what=cpu&which=5 with the explanation of CPU 5.
func (p *Page) explain(w http.ResponseWriter, r *http.Request) {
	if p.questionSlots.Acquire(r.Context(), 1) != nil {
		return // the client has disconnected
	}
	e, known := p.answer(r)
	p.questionSlots.Release(1)
	if !known {
		http.Error(w, "the node does not have this object now", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(e)) // fails only if the client has disconnected
}

// answer returns the explanation that a request asks for. It returns false if the node does not have the object.
func (p *Page) answer(r *http.Request) (explanation, bool) {
	parameters := r.URL.Query()
	q := question{parameters.Get("what"), parameters.Get("which")}
	if len(q.name) > maxQuestionLength {
		return explanation{}, false
	}
	if q.kind == "container" {
		return explainContainer(q.name, p.o.Source.Explain)
	}
	return explain(q, p.feed.status(r.Context()))
}

// serveSVG serves the map of the CPUs as an image, for browsers without scripts.
func (p *Page) serveSVG(w http.ResponseWriter, r *http.Request) {
	n := p.feed.status(r.Context())
	head := []cpumap.Line{{Style: cpumap.Title, Text: "node " + p.o.Node}, {Text: nodeVerdict(n).Text}}
	var b bytes.Buffer
	if err := cpumap.SVG(&b, head, n.CPUs); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write(b.Bytes())
}

// stream sends the state and its changes as server-sent events until the client disconnects, or is too slow.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	if !p.feed.openStream() {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open on this node; close one", http.StatusServiceUnavailable)
		return
	}
	defer p.feed.closeStream()
	out := stream{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // otherwise the server's limit for reading a request would end the stream
	w.Header().Set("Content-Type", "text/event-stream")
	var sent position
	for {
		f := p.feed.frame(r.Context(), sent)
		if err := out.send(f); err != nil {
			return
		}
		sent = f.at
		if !pauseStream(r.Context(), f.nextEvent) {
			return
		}
	}
}

// pauseStream waits until nextEvent closes, but at least minInterval and at most loadInterval. It returns false when
// ctx ends.
func pauseStream(ctx context.Context, nextEvent <-chan struct{}) bool {
	least, most := time.NewTimer(minInterval), time.NewTimer(loadInterval)
	defer least.Stop()
	defer most.Stop()
	select {
	case <-least.C:
	case <-ctx.Done():
		return false
	}
	select {
	case <-nextEvent:
	case <-most.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// stream is an answer that stays open: the page sends messages to one client in it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// send writes a frame as server-sent events.
func (s stream) send(f frame) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(clientTimeout)); err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		data []byte
	}{{"state", f.full}, {"change", f.changed}, {"use", f.load}} {
		if m.data == nil {
			continue
		}
		if _, err := s.w.Write(append(append([]byte("event: "+m.name+"\ndata: "), m.data...), "\n\n"...)); err != nil {
			return err
		}
	}
	return s.control.Flush()
}
