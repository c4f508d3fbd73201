package podspec

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sleep"
)

// maxAnswer bounds the text of /pods: 110 pods of average size are about 1 MiB, and no
// node runs enough pods for this bound.
const maxAnswer = 256 << 20

// KubeletOptions configure how to reach the kubelet's server.
type KubeletOptions struct {
	// URL is https://host:10250, or http://127.0.0.1:10255 for the read-only port, which
	// gets no token.
	URL string
	// TokenFile holds the bearer token; it is read again for each request.
	TokenFile string
	// CAFile has the certificates that verify the kubelet's; "" means the system's.
	// ServerName is the name in its certificate, "" means the URL's host.
	CAFile, ServerName string
	// CertFile and KeyFile are a client certificate of ours.
	CertFile, KeyFile string
	// SkipVerify accepts any certificate.
	SkipVerify bool
	// Node is the node's name; "" accepts any name that all pods have in common.
	Node string
	// Interval is the pause between two questions.
	Interval time.Duration
	// Dial connects to a host and port; nil for the system's call.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Kubelet is the kubelet's /pods endpoint.
type Kubelet struct {
	o      KubeletOptions
	client *http.Client
	wake   chan struct{}
	secret sync.Mutex // guards the creation of the TLS configuration

	turn   chan struct{} // a lock: the goroutine whose token it holds may ask; guards all below
	asked  time.Time
	next   time.Time // time of the next allowed question
	answer *Update
}

// The kubelet encodes all its pods for each question. So between two there is a pause
// of at least minPause, and of pauseFactor times the duration of the last one.
const (
	minPause    = 10 * time.Millisecond
	pauseFactor = 3
)

// fetchTimeout bounds a request that nobody waits for.
const fetchTimeout = 10 * time.Second

// NewKubelet returns a client. It reads files when it needs them, so that they may be
// created later and change.
func NewKubelet(o KubeletOptions) *Kubelet {
	k := &Kubelet{o: o, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
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

// Get reads all pods, because the endpoint cannot return a single one. Callers that
// wait at the same time share an answer. If it is too early to ask again, it returns
// ErrLater, and Follow asks soon.
func (k *Kubelet) Get(ctx context.Context, uid string) (Update, error) {
	u, err := k.shared(ctx)
	switch {
	case err != nil:
		k.Soon()
		return Update{}, err
	case u.All[uid] == nil:
		return *u, ErrUnknown
	}
	return *u, nil
}

// shared returns an answer to a question that was sent after the call began.
func (k *Kubelet) shared(ctx context.Context) (*Update, error) {
	arrived := time.Now()
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if k.asked.After(arrived) && k.answer != nil {
		return k.answer, nil
	}
	if wait := time.Until(k.next); wait > 0 {
		if end, bounded := ctx.Deadline(); bounded && time.Until(end) < wait {
			return nil, ErrLater
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

// Soon makes Follow ask as soon as it may.
func (k *Kubelet) Soon() { signal(k.wake) }

// Follow asks periodically, and soon after a caller waited in vain. It returns after
// the first request without an answer.
func (k *Kubelet) Follow(ctx context.Context, tell func(Update)) error {
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
		u, err := k.shared(limited)
		cancel()
		if err != nil {
			return err
		}
		tell(*u)
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
		return nil, fmt.Errorf("%s: longer than %d MiB", url, maxAnswer>>20)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	all, twice, err := listed(list.pods, k.o.Node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return &Update{All: all, Full: true, Pending: list.pending, Unread: append(list.unread, twice...)}, nil
}

// errorHint returns what to do about a refusal.
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

// certificates reads the files when they exist. A client certificate is read at each
// handshake, because it is renewed.
func (k *Kubelet) certificates() error {
	k.secret.Lock()
	defer k.secret.Unlock()
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
		err = errors.New("is longer than 1 MiB")
	}
	return string(b), err
}
