package kube

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// token is the agent's token for the API server. Its methods explain why the server refused the token.
type token struct {
	file, text string // the file with the token, or the token itself
	// clockAhead is how far the API server's clock is ahead of this node's clock, in ns. It is computed from the Date
	// header of the server's last answer.
	clockAhead atomic.Int64
}

// tokenOf returns the token in a configuration. It also wraps the transport of the configuration, so that the token
// gets the Date header of each answer.
func tokenOf(c *rest.Config) *token {
	t := &token{file: c.BearerTokenFile, text: c.BearerToken}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return dateReader{next, t} })
	return t
}

// dateReader is a RoundTripper that reads the Date header of answers.
type dateReader struct {
	http.RoundTripper

	token *token
}

// RoundTrip implements http.RoundTripper.
func (d dateReader) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := d.RoundTripper.RoundTrip(q)
	if err == nil {
		if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			d.token.clockAhead.Store(int64(time.Until(at)))
		}
	}
	return answer, err
}

// minSkew is the smallest difference between the clocks of the API server and of this node that counts. Smaller
// differences mean nothing, because the Date header has whole seconds, and an answer takes time.
const minSkew = 5 * time.Second

// explain adds the possible reason to an error with which the server refused the token. It returns other errors
// unchanged.
func (t *token) explain(err error) error {
	if t == nil || !apierrors.IsUnauthorized(err) {
		return err
	}
	text := t.text
	if t.file != "" {
		refusal := err
		data, err := os.ReadFile(t.file)
		if err != nil {
			return fmt.Errorf("the API server refuses the agent's token: %w; %w", refusal, err)
		}
		text = strings.TrimSpace(string(data))
	}
	ahead := time.Duration(t.clockAhead.Load())
	why := whyRefused(text, time.Now().Add(ahead))
	switch {
	case ahead > minSkew:
		why += fmt.Sprintf("; the API server's clock is %s ahead of this node's", ahead.Truncate(time.Second))
	case ahead < -minSkew:
		why += fmt.Sprintf("; the API server's clock is %s behind this node's", (-ahead).Truncate(time.Second))
	}
	return fmt.Errorf("the API server refuses the agent's token, %s: %w", why, err)
}

// whyRefused returns the possible reason for a refusal of the token, as a clause that begins with "which". It compares
// the times in the token with the API server's time. It checks no signature.
func whyRefused(text string, serverTime time.Time) string {
	times, err := timesOf(text)
	if err != nil {
		return err.Error()
	}
	expiredFor := serverTime.Sub(wallTime(times.Expires)).Truncate(time.Second)
	validIn := wallTime(cmp.Or(times.NotBefore, times.Issued)).Sub(serverTime).Truncate(time.Second)
	switch {
	case times.Expires != 0 && expiredFor >= 0:
		return fmt.Sprintf("which expired %s ago", expiredFor)
	case validIn > 0:
		return fmt.Sprintf("which becomes valid only in %s", validIn)
	}
	return "which has not expired: the token belongs to another cluster, or its pod, node or service account was deleted"
}

// wallTime converts a time in a token.
func wallTime(seconds int64) time.Time { return time.Unix(seconds, 0) }

// tokenTimes are the times in a JSON web token, in seconds since 1970.
type tokenTimes struct {
	Expires   int64 `json:"exp"`
	NotBefore int64 `json:"nbf"`
	Issued    int64 `json:"iat"`
}

// timesOf reads the times in a token. The error is a clause that begins with "which".
func timesOf(text string) (t tokenTimes, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return t, errors.New("which is not a service account token")
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, fmt.Errorf("which cannot be read: %w", err)
	}
	return t, nil
}
