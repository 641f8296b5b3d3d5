package gate

import (
	"encoding/json"
	"errors"
	"net/http"
)

// Handler serves GET /v1/drain and nothing else, so that its listener can be open to all pods.
func (g *Gate) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/drain", g.serve)
	return mux
}

func (g *Gate) serve(w http.ResponseWriter, r *http.Request) {
	ask, err := requestOf(r.URL.RawQuery)
	if err != nil {
		g.metrics.refuse(refusedBad)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, err := g.Drain(r.Context(), ask)
	if bad := (RequestError{}); errors.As(err, &bad) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if errors.Is(err, ErrBusy) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	if err != nil {
		// Either nobody reads this, or the server ends: another replica can answer.
		http.Error(w, "the replica ends", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	body, err := json.Marshal(a)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(append(body, '\n'))
}
