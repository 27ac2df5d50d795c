// Says of each line of standard input what Go's parsers make of it: of `{"url":…}` whether it is a URL
// and its parts, of `{"pattern":…,"texts":[…]}` whether it compiles and what it finds in each text, of
// `{"ip":…}` whether it is an address.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/netip"
	"net/url"
	"os"
	"regexp"
)

type question struct {
	URL     *string  `json:"url"`
	Pattern *string  `json:"pattern"`
	IP      *string  `json:"ip"`
	Texts   []string `json:"texts"`
}

type parts struct {
	Scheme, Host, Hostname, Port, Path, Text string
	Query                                    map[string][]string
}

type answer struct {
	Error string     `json:"error"`
	Parts *parts     `json:"parts,omitempty"`
	Found [][]string `json:"found,omitempty"`
}

func ofURL(text string) answer {
	if _, err := url.ParseRequestURI(text); err != nil {
		return answer{Error: err.Error()}
	}
	u, err := url.Parse(text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Parts: &parts{
		Scheme: u.Scheme, Host: u.Host, Hostname: u.Hostname(), Port: u.Port(),
		Path: u.EscapedPath(), Query: u.Query(), Text: u.String(),
	}}
}

func ofPattern(text string, texts []string) answer {
	pattern, err := regexp.Compile(text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	found := [][]string{}
	for _, text := range texts {
		all := pattern.FindAllString(text, -1)
		if all == nil {
			all = []string{}
		}
		found = append(found, all)
	}
	return answer{Found: found}
}

func ofIP(text string) answer {
	if _, err := netip.ParseAddr(text); err != nil {
		return answer{Error: err.Error()}
	}
	return answer{}
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			log.Fatal(err)
		}
		var a answer
		switch {
		case q.URL != nil:
			a = ofURL(*q.URL)
		case q.Pattern != nil:
			a = ofPattern(*q.Pattern, q.Texts)
		case q.IP != nil:
			a = ofIP(*q.IP)
		}
		if err := encoder.Encode(a); err != nil {
			log.Fatal(err)
		}
	}
}
