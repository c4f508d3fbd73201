package podspec

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sleep"
)

// maxAnswer bounds the answer of /pods. 110 pods of average size take about 1 MiB, and no node runs enough pods to
// exceed this bound.
const maxAnswer = 256 << 20

// KubeletOptions configure how to reach the kubelet's server.
type KubeletOptions struct {
	// URL is https://host:10250, or http://127.0.0.1:10255 for the read-only port, which
	// gets no token.
	URL string
	// TokenFile holds the bearer token; it is read again for each request.
	TokenFile string
	// CAFile has the certificates that verify the kubelet's certificate; "" means those of the system. ServerName
	// is the name in the kubelet's certificate; "" means the host of the URL.
	CAFile, ServerName string
	// CertFile and KeyFile are the client certificate of the agent.
	CertFile, KeyFile string
	// SkipVerify accepts any certificate.
	SkipVerify bool
	// Node is the node's name; "" means any name that all pods have in common.
	Node string
	// Interval is the pause between two polls.
	Interval time.Duration
	// Dial connects to a host and port; nil means the system's call.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Kubelet is the kubelet's /pods endpoint.
type Kubelet struct {
	o      KubeletOptions
	client *http.Client
	wake   chan struct{}
	tlsMu  sync.Mutex // guards the creation of the TLS configuration

	turn   *semaphore.Weighted // held while a goroutine calls the kubelet; guards all fields below
	asked  time.Time
	next   time.Time // the time at which the next request may be sent
	answer *Update
}

// The kubelet encodes all its pods for each request. So the pause between two requests is at least minPause, and at
// least pauseFactor times the duration of the last request.
const (
	minPause    = 10 * time.Millisecond
	pauseFactor = 3
)

// fetchTimeout bounds a request for which no runtime waits.
const fetchTimeout = 10 * time.Second

// NewKubelet returns a client. It reads files when it needs them, so that they may be
// created later and change.
func NewKubelet(o KubeletOptions) *Kubelet {
	k := &Kubelet{o: o, wake: make(chan struct{}, 1), turn: semaphore.NewWeighted(1)}
	transport := &http.Transport{
		MaxIdleConns: 1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 5 * time.Second,
		DisableCompression: true, // maxAnswer bounds the uncompressed text
	}
	if o.Dial != nil {
		transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) { return o.Dial(ctx, address) }
	}
	k.client = &http.Client{
		Transport: transport,
		// A kubelet never redirects, and only it may get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return k
}

// Source names the source.
func (*Kubelet) Source() lifecycle.Source { return lifecycle.FromKubelet }

// Close ends idle connections.
func (k *Kubelet) Close() error {
	k.client.CloseIdleConnections()
	return nil
}

// Get reads all pods, because the endpoint cannot return a single pod. Callers that wait at the same time share an
// answer. If it is too early for another request, Get returns ErrTooSoon, and Watch polls soon.
func (k *Kubelet) Get(ctx context.Context, uid string) (Update, error) {
	u, err := k.sharedList(ctx)
	switch {
	case err != nil:
		k.PollSoon()
		return Update{}, err
	case u.All[uid] == nil:
		return *u, ErrUnknown
	}
	return *u, nil
}

// sharedList returns the answer to a request that was sent after the call of sharedList.
func (k *Kubelet) sharedList(ctx context.Context) (*Update, error) {
	arrived := time.Now()
	if err := k.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer k.turn.Release(1)
	if k.asked.After(arrived) && k.answer != nil {
		return k.answer, nil
	}
	if wait := time.Until(k.next); wait > 0 {
		if end, bounded := ctx.Deadline(); bounded && time.Until(end) < wait {
			return nil, ErrTooSoon
		}
		if !sleep.For(ctx, wait) {
			return nil, ctx.Err()
		}
	}
	k.asked = time.Now()
	var err error
	k.answer, err = k.list(ctx)
	now := time.Now()
	k.next = now.Add(max(minPause, pauseFactor*now.Sub(k.asked)))
	return k.answer, err
}

// PollSoon makes Watch poll as soon as it may.
func (k *Kubelet) PollSoon() { sleep.Wake(k.wake) }

// Watch polls periodically, and soon after a caller of Get had no answer in time. It returns after the first
// request without an answer.
func (k *Kubelet) Watch(ctx context.Context, report func(Update)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-k.wake:
		}
		limited, cancel := context.WithTimeout(ctx, fetchTimeout)
		u, err := k.sharedList(limited)
		cancel()
		if err != nil {
			return err
		}
		report(*u)
		timer.Reset(k.o.Interval)
	}
}

func (k *Kubelet) list(ctx context.Context) (*Update, error) {
	url := strings.TrimSuffix(k.o.URL, "/") + "/pods"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if err := k.authorise(req); err != nil {
		return nil, err
	}
	res, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s%s", url, res.Status, errorHint(res.StatusCode))
	}
	body := &io.LimitedReader{R: res.Body, N: maxAnswer}
	list, err := decodeList(body, lifecycle.FromKubelet)
	switch {
	case err != nil && body.N <= 0:
		return nil, fmt.Errorf("%s: the answer is longer than %d MiB", url, maxAnswer>>20)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	u, err := list.update(k.o.Node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return &u, nil
}

// errorHint returns what to do about an HTTP error of the kubelet.
func errorHint(code int) string {
	switch code {
	case http.StatusUnauthorized:
		return ": set podspec.kubelet.tokenFile, or a client certificate that the kubelet accepts"
	case http.StatusForbidden:
		return `: the token's account may not read it; a role needs "get" on nodes/pods, or nodes/proxy before Kubernetes 1.33`
	case http.StatusNotFound:
		return ": the server is not a kubelet"
	}
	return ""
}

// authorise adds the token, and updates the certificates. It sends a token only over TLS.
func (k *Kubelet) authorise(req *http.Request) error {
	if req.URL.Scheme != "https" {
		return nil
	}
	if err := k.certificates(); err != nil {
		return err
	}
	if k.o.TokenFile == "" {
		return nil
	}
	token, err := readBounded(k.o.TokenFile)
	if err != nil {
		return fmt.Errorf("podspec.kubelet.tokenFile: %w", err)
	}
	if token = strings.TrimSpace(token); token == "" {
		return fmt.Errorf("podspec.kubelet.tokenFile: %s is empty", k.o.TokenFile)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// certificates makes the TLS configuration, once. If it cannot read the CA file, it returns an error, and the next
// request tries again. The client certificate is read at each handshake, because it is renewed.
func (k *Kubelet) certificates() error {
	k.tlsMu.Lock()
	defer k.tlsMu.Unlock()
	t, _ := k.client.Transport.(*http.Transport) // ours
	if t.TLSClientConfig != nil {
		return nil
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: k.o.ServerName,
		InsecureSkipVerify: k.o.SkipVerify, //nolint:gosec // the operator configured it, and trimtab doctor warns of it
	}
	if k.o.CAFile != "" {
		pem, err := readBounded(k.o.CAFile)
		if err != nil {
			return fmt.Errorf("podspec.kubelet.caFile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(pem)) {
			return fmt.Errorf("podspec.kubelet.caFile: %s holds no certificate", k.o.CAFile)
		}
	}
	if k.o.CertFile != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(k.o.CertFile, k.o.KeyFile)
			return &pair, err
		}
	}
	t.TLSClientConfig = c
	return nil
}

// maxFile bounds the files of certificates and tokens.
const maxFile = 1 << 20

func readBounded(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is longer than 1 MiB", file)
	}
	return string(b), err
}
