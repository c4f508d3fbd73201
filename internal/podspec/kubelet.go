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

// maxAnswer is the longest answer of /pods in bytes. The answer for 110 pods of average size has about 1 MiB, so no
// node has enough pods to reach this limit.
const maxAnswer = 256 << 20

// KubeletOptions configure how to reach the kubelet's server.
type KubeletOptions struct {
	// URL is https://host:10250, or http://127.0.0.1:10255 for the read-only port. The agent sends no token to the
	// read-only port.
	URL string
	// TokenFile has the bearer token. The agent reads this file again for each request.
	TokenFile string
	// CAFile has the CA certificates that verify the certificate of the kubelet; "" means the CA certificates of the
	// system. ServerName is the name in the certificate of the kubelet; "" means the host in URL.
	CAFile, ServerName string
	// CertFile and KeyFile have the client certificate of the agent and its key.
	CertFile, KeyFile string
	// SkipVerify makes the agent accept any certificate.
	SkipVerify bool
	// Node is the name of the node that all pods must have. If Node is "", the pods may have any node, but all of them
	// the same.
	Node string
	// Interval is the pause between two polls.
	Interval time.Duration
	// Dial connects to a host and port. If Dial is nil, package net/http makes the connection itself.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Kubelet reads pods from the kubelet's /pods endpoint.
type Kubelet struct {
	o      KubeletOptions
	client *http.Client
	wake   chan struct{} // wakes Watch
	tlsMu  sync.Mutex    // held while a goroutine makes the TLS configuration

	callSem     *semaphore.Weighted // held while a goroutine calls the kubelet; guards all fields below
	lastRequest time.Time           // when the last request was sent
	nextRequest time.Time           // when the next request may be sent
	lastAnswer  *Update             // nil if the last request failed
}

// The kubelet encodes all its pods for each request. To limit this work, the pause between two requests is at least
// minPause. It is also at least pauseFactor times the duration of the last request.
const (
	minPause    = 10 * time.Millisecond
	pauseFactor = 3
)

// fetchTimeout is the time limit of a request in the background. No request of the runtime waits for its answer.
const fetchTimeout = 10 * time.Second

// NewKubelet returns a source that reads from the kubelet. The source reads certificates and the token when it needs
// them, so that their files may be created later.
func NewKubelet(o KubeletOptions) *Kubelet {
	k := &Kubelet{o: o, wake: make(chan struct{}, 1), callSem: semaphore.NewWeighted(1)}
	transport := &http.Transport{
		MaxIdleConns: 1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 5 * time.Second,
		DisableCompression: true, // so that maxAnswer limits the uncompressed text
	}
	if o.Dial != nil {
		transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) { return o.Dial(ctx, address) }
	}
	k.client = &http.Client{
		Transport: transport,
		// A kubelet never redirects, and no other server may get the token.
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
// answer. If the pause before the next request ends only after the deadline of ctx, Get returns ErrNotReportedYet, and
// Watch polls soon.
func (k *Kubelet) Get(ctx context.Context, uid string) (Update, error) {
	u, err := k.sharedList(ctx)
	switch {
	case err != nil:
		k.PollSoon()
		return Update{}, err
	case u.All[uid] == nil:
		return *u, ErrNoSuchPod
	}
	return *u, nil
}

// sharedList returns the answer to a request that was sent after sharedList was called. Another caller of sharedList
// may have sent this request.
func (k *Kubelet) sharedList(ctx context.Context) (*Update, error) {
	arrived := time.Now()
	if err := k.callSem.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer k.callSem.Release(1)
	if k.lastRequest.After(arrived) && k.lastAnswer != nil {
		return k.lastAnswer, nil
	}
	if wait := time.Until(k.nextRequest); wait > 0 {
		if end, bounded := ctx.Deadline(); bounded && time.Until(end) < wait {
			return nil, ErrNotReportedYet
		}
		if !sleep.For(ctx, wait) {
			return nil, ctx.Err()
		}
	}
	k.lastRequest = time.Now()
	var err error
	k.lastAnswer, err = k.list(ctx)
	now := time.Now()
	k.nextRequest = now.Add(max(minPause, pauseFactor*now.Sub(k.lastRequest)))
	return k.lastAnswer, err
}

// PollSoon makes Watch poll as soon as the pause after the last request has passed (see minPause).
func (k *Kubelet) PollSoon() { sleep.Wake(k.wake) }

// Watch polls every Interval, and soon after a call of Get that got no answer in time. It returns when a request fails.
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

// list requests all pods from the kubelet.
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
	u, err := list.toUpdate(k.o.Node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return &u, nil
}

// errorHint returns what the operator can do about an HTTP error of the kubelet.
func errorHint(code int) string {
	switch code {
	case http.StatusUnauthorized:
		return ": set podspec.kubelet.tokenFile, or a client certificate that the kubelet accepts"
	case http.StatusForbidden:
		return `: the token's account may not read this endpoint; a role needs "get" on nodes/pods, or nodes/proxy before Kubernetes 1.33`
	case http.StatusNotFound:
		return ": the server is not a kubelet"
	}
	return ""
}

// authorise adds the token to a request, but only to a request over TLS. It also makes the TLS configuration if there
// is none.
func (k *Kubelet) authorise(req *http.Request) error {
	if req.URL.Scheme != "https" {
		return nil
	}
	if err := k.prepareTLS(); err != nil {
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

// prepareTLS makes the TLS configuration if there is none. If it cannot read the CA file, it returns an error, and
// the next request tries again. The client certificate is read at each TLS handshake, because its file may be renewed.
func (k *Kubelet) prepareTLS() error {
	k.tlsMu.Lock()
	defer k.tlsMu.Unlock()
	t, _ := k.client.Transport.(*http.Transport) // NewKubelet has set this type
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

// maxFile is the largest size of a file with certificates or a token, in bytes.
const maxFile = 1 << 20

// readBounded reads a file of at most maxFile bytes.
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
