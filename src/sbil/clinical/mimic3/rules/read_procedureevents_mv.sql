-- PROCEDUREEVENTS_MV: spells of invasive ventilation (ventilation.csv); orders that were written anew are left out.
SELECT DISTINCT
    try_cast(subject_id AS INTEGER) AS subject_id,
    try_cast(starttime AS TIMESTAMP) AS started,
    try_cast(endtime AS TIMESTAMP) AS ended
FROM source
WHERE itemid IN (SELECT itemid::VARCHAR FROM ventilation WHERE events = 'procedureevents_mv')
  AND coalesce(statusdescription, '') <> 'Rewritten'
