-- PRESCRIPTIONS: antibiotics by the drug's name (antibiotics.csv), whatever the route; solvents (BASE) are left out.
-- `systemic` says whether the route (routes.csv) brings the drug to the whole body.
SELECT
    try_cast(subject_id AS INTEGER) AS subject_id,
    try_cast(startdate AS DATE) AS first_day,
    coalesce(try_cast(enddate AS DATE), try_cast(startdate AS DATE)) AS last_day,
    upper(trim(coalesce(route, ''))) IN (SELECT route FROM routes) AS systemic
FROM source
WHERE upper(trim(coalesce(drug_type, 'MAIN'))) IN ('MAIN', '')
  AND EXISTS (SELECT 1 FROM antibiotics WHERE contains(lower(drug), name))
