package catalog

import (
	"net/url"
)

// MCPServer is an MCP server that an agent uses.
type MCPServer struct {
	Type string `json:"type"`
	Name string `json:"name"`
	URL  string `json:"url"`
}

const maxServers, maxURL = 20, 2048

func checkServers(servers []MCPServer) error {
	if len(servers) > maxServers {
		return invalidf("mcp_servers", "are %d; at most %d are taken", len(servers), maxServers)
	}
	seen := make(map[string]bool)
	for i, s := range servers {
		path := at("mcp_servers", i)
		if s.Type != "url" {
			return invalidf(path+".type", "must be url, not %q", short(s.Type))
		}
		if err := checkLength(path+".name", s.Name, 1, maxServer); err != nil {
			return err
		}
		if err := checkLength(path+".url", s.URL, 1, maxURL); err != nil {
			return err
		}
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return invalidf(path+".url", "%q is not the URL of a server", short(s.URL))
		}
		if seen[s.Name] {
			return invalidf(path+".name", "there are two servers called %q", short(s.Name))
		}
		seen[s.Name] = true
	}
	return nil
}

// checkToolsets refuses a toolset of a server that is not there, and a server
// that has not exactly one toolset.
func checkToolsets(servers []MCPServer, tools []Tool) error {
	uses := make(map[string]int)
	for _, s := range servers {
		uses[s.Name] = 0
	}
	for i, t := range tools {
		if t.MCP == nil {
			continue
		}
		n, ok := uses[t.MCP.Server]
		switch {
		case !ok:
			return invalidf(at("tools", i)+".mcp_server_name", "there is no server %q in mcp_servers", short(t.MCP.Server))
		case n > 0:
			return invalidf(at("tools", i)+".mcp_server_name", "there are two toolsets of %q", short(t.MCP.Server))
		}
		uses[t.MCP.Server]++
	}
	for i, s := range servers {
		if uses[s.Name] == 0 {
			return invalidf(at("mcp_servers", i), "no %s in tools refers to %q", typeMCP, short(s.Name))
		}
	}
	return nil
}
